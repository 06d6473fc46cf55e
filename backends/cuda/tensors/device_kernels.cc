#include "backends/cuda/tensors/device_kernels.h"

#include <exception>
#include <string>

#include "engine/base/assert.h"

namespace plumbline::cuda {
namespace {

// LibTorch throws.
template <typename Body>
Status guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    const std::string text = thrown.what();
    return fail(ErrorCode::kState, "LibTorch: " + text.substr(0, text.find('\n')));
  }
}

}  // namespace

DeviceKernels::DeviceKernels(const Libraries& libraries, StageWorker& worker,
                             std::unique_ptr<TensorDevice> device)
    : worker_(&worker), on_host_(libraries, worker), device_(std::move(device)) {
  PL_ASSERT(worker.has_place());
}

std::optional<MemoryKind> DeviceKernels::memory(const SlotClass& slot) const {
  switch (slot.kind) {
    case SlotKind::kActivation:
    case SlotKind::kGradient:
      return MemoryKind::kDevice;
    case SlotKind::kStash:
    case SlotKind::kRebuilt:
      return std::nullopt;
    default:
      return MemoryKind::kManaged;
  }
}

Status DeviceKernels::bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle stream) {
  return on_host_.bind(slot, memory, stream);
}

Status DeviceKernels::launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                             StreamHandle stream) {
  if (device_ == nullptr || !StageWorker::on_device(call.program->kernels[call.kernel].kind))
    return on_host_.launch(call, slots, stream);
  return guarded([&]() -> Status {
    const std::shared_ptr<void> guard = device_->enter(stream);
    ListedSlots store(slots);
    return worker_->launch(call, store);
  });
}

Status DeviceKernels::warm_up(const Program& program, Bytes unseen, StreamHandle stream) {
  if (device_ == nullptr || unseen <= reserved_) return {};
  return guarded([&]() -> Status {
    const std::shared_ptr<void> guard = device_->enter(stream);
    PL_TRY(device_->reserve(unseen));
    PL_TRY(worker_->warm_up(program));
    reserved_ = unseen;
    return device_->synchronize(stream);
  });
}

ComputePlace place_on(Device device, at::Device tensors) {
  ComputePlace place;
  place.device = tensors;
  place.shared_memory = [device = std::move(device)](Bytes bytes) -> Result<std::shared_ptr<std::byte>> {
    Result<Memory> memory = Memory::allocate(device, MemoryKind::kManaged, bytes);
    if (!memory) return tl::unexpected(memory.error());
    const auto kept = std::make_shared<Memory>(std::move(*memory));
    return std::shared_ptr<std::byte>(kept, kept->get());
  };
  return place;
}

}  // namespace plumbline::cuda
