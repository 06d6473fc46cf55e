#include "backends/cuda/tensors/device/tensor_device.h"

#include <cstdlib>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/version.h>

namespace plumbline::cuda {
namespace {

class CudaTensors final : public TensorDevice {
 public:
  explicit CudaTensors(int ordinal) : index_(static_cast<c10::DeviceIndex>(ordinal)) {}

  at::Device device() const override { return {at::kCUDA, index_}; }

  std::shared_ptr<void> enter(StreamHandle stream) override {
    return std::make_shared<c10::cuda::CUDAStreamGuard>(stream_of(stream));
  }

  // The allocator serves tensors of up to a megabyte from segments of two, and cuts larger ones from any free segment
  // that is large enough; freed segments stay with the stream.
  Status reserve(Bytes bytes) override {
    constexpr Bytes kSmall = Bytes{1} << 20;
    constexpr Bytes kLeast = Bytes{64} << 20;
    const at::TensorOptions options = at::TensorOptions().dtype(at::kByte).device(device());
    const Bytes wanted = kLeast + bytes + bytes / 4;
    std::vector<at::Tensor> held{at::empty({wanted}, options)};
    for (Bytes small = 0; small < kLeast; small += kSmall) held.push_back(at::empty({kSmall}, options));
    return {};
  }

  Status synchronize(StreamHandle stream) override {
    stream_of(stream).synchronize();
    return {};
  }

 private:
  c10::cuda::CUDAStream stream_of(StreamHandle stream) const {
    return c10::cuda::getStreamFromExternal(stream, index_);
  }

  c10::DeviceIndex index_;
};

}  // namespace

std::unique_ptr<TensorDevice> tensor_device(int ordinal) { return std::make_unique<CudaTensors>(ordinal); }

void set_up_device_tensors() {
  constexpr int kKeep = 0;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", kKeep);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setFloat32MatmulPrecision("highest");
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 2
  context.setDeterministicFillUninitializedMemory(false);  // everything here is written before it is read
#endif
}

}  // namespace plumbline::cuda
