// DeviceKernels: stages on device tensors. A kernel of the Program finds its slots as tensors on the rank's device -
// views, no copies - and enqueues its work on the kernel's own CUDA stream; it returns as soon as that is enqueued.
// Tensors that it makes come from LibTorch's caching allocator on that stream.
//
// Needs a CUDA LibTorch 2.x to compile and link, and a GPU to run; it has been compiled and linked, and never run.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "backends/cuda/kernels.h"
#include "engine/program/program.h"

namespace plumbline::cuda {

// The slots of one kernel, by the role they have for it.
class TensorSlots {
 public:
  TensorSlots(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots, int device)
      : call_(&call), slots_(&slots), device_(device) {}
  // The slot of this kind and stage among those the kernel touches, as a flat tensor; undefined when it has none. A
  // forward of stage s reads activation s and writes activation s + 1, a backward gradient s + 1 and s.
  at::Tensor find(SlotKind kind, int stage) const;
  int device() const { return device_; }

 private:
  const KernelCall* call_;
  const std::vector<std::pair<SlotRef, SlotMemory>>* slots_;
  int device_;
};

// The model's part on one rank.
class TensorStage {
 public:
  virtual ~TensorStage() = default;
  // A persistent slot, as a flat tensor of zeros; views of it may be kept.
  virtual Status bind(const SlotClass& slot, const at::Tensor& memory) = 0;
  // Enqueues on the current stream. Nothing that waits for the device may be called here.
  virtual Status run(const KernelCall& call, const TensorSlots& slots) = 0;
};

class DeviceKernels final : public StageKernels {
 public:
  // `stage` outlives this.
  DeviceKernels(int device, TensorStage& stage) : device_(device), stage_(&stage) {}
  MemoryKind memory() const override { return MemoryKind::kDevice; }
  Status bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle stream) override;
  Status launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                StreamHandle stream) override;

 private:
  int device_;
  TensorStage* stage_;
};

// Before the first tensor: deterministic kernels, cuDNN without its search for the fastest.
void set_up_device_tensors();

}  // namespace plumbline::cuda
