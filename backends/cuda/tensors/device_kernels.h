// DeviceKernels: a rank whose stages compute on the device with LibTorch's tensors and whose optimizer computes on the
// host, in its turn on the same stream. Activations and their gradients lie in device memory, everything that both
// touch in managed memory (ComputePlace), and stashes have none: they are the graphs that LibTorch keeps.
//
// On the doubles there is no device and the same worker's stages compute on the CPU, called from their stream like
// everything else; what a device would see of slots, places and arithmetic is the same.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/kernels.h"
#include "engine/train/compute_place.h"
#include "engine/train/worker.h"

namespace plumbline::cuda {

// What LibTorch must be told of a device; backends/cuda/tensors/device has it, where LibTorch can CUDA.
class TensorDevice {
 public:
  virtual ~TensorDevice() = default;
  virtual at::Device device() const = 0;
  // Until the guard goes, LibTorch's current device is this one, and its current stream `stream`.
  virtual std::shared_ptr<void> enter(StreamHandle stream) = 0;
  // Within a guard: LibTorch's allocator holds so many bytes more for the stream.
  virtual Status reserve(Bytes bytes) = 0;
  virtual Status synchronize(StreamHandle stream) = 0;
};

class DeviceKernels final : public StageKernels {
 public:
  // All outlive this; `worker` has a place. Without a device its stages are called from the stream.
  DeviceKernels(const Libraries& libraries, StageWorker& worker, std::unique_ptr<TensorDevice> device);
  std::optional<MemoryKind> memory(const SlotClass& slot) const override;
  Status bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle stream) override;
  Status launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                StreamHandle stream) override;
  Status warm_up(const Program& program, Bytes unseen, StreamHandle stream) override;
  std::optional<Error> error_so_far() override { return on_host_.error_so_far(); }

 private:
  StageWorker* worker_;
  HostKernels on_host_;
  std::unique_ptr<TensorDevice> device_;
  Bytes reserved_ = -1;
};

// The place of a rank on this device: managed memory of the device, tensors of `tensors`.
ComputePlace place_on(Device device, at::Device tensors);

}  // namespace plumbline::cuda
