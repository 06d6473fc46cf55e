#include "backends/cuda/tensors/device/device_kernels.h"

#include <exception>
#include <functional>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace plumbline::cuda {
namespace {

at::ScalarType scalar_type(DType type) {
  switch (type) {
    case DType::kU8:
      return at::kByte;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    case DType::kF8E4M3:  // a stage sees the bytes
    case DType::kF8E5M2:
      return at::kByte;
  }
  return at::kByte;
}

// A view of a slot; the backend keeps the memory until everything that uses it has completed.
at::Tensor view_of(const SlotMemory& memory, int device) {
  const auto options = at::TensorOptions()
                           .dtype(scalar_type(memory.dtype))
                           .device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return at::from_blob(memory.data, {memory.bytes / dtype_bytes(memory.dtype)}, options);
}

// The device, and the driver's stream as LibTorch's current one.
c10::cuda::CUDAStreamGuard on_stream(StreamHandle stream, int device) {
  return c10::cuda::CUDAStreamGuard(
      c10::cuda::getStreamFromExternal(stream, static_cast<c10::DeviceIndex>(device)));
}

Status guarded(const std::function<Status()>& body) {
  try {
    return body();
  } catch (const std::exception& thrown) {  // LibTorch throws
    return fail(ErrorCode::kState, std::string("LibTorch: ") + thrown.what());
  }
}

}  // namespace

at::Tensor TensorSlots::find(SlotKind kind, int stage) const {
  for (const auto& [ref, memory] : *slots_) {
    const SlotClass& row = call_->program->slots[ref.slot_class];
    if (row.kind == kind && row.stage == stage) return view_of(memory, device_);
  }
  return {};
}

Status DeviceKernels::bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle stream) {
  return guarded([&] {
    const auto guard = on_stream(stream, device_);
    return stage_->bind(slot, view_of(memory, device_));
  });
}

Status DeviceKernels::launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                             StreamHandle stream) {
  return guarded([&] {
    const auto guard = on_stream(stream, device_);
    return stage_->run(call, TensorSlots(call, slots, device_));
  });
}

void set_up_device_tensors() {
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

}  // namespace plumbline::cuda
