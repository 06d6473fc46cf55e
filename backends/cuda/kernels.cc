#include "backends/cuda/kernels.h"

#include <utility>

namespace plumbline::cuda {

// One launch, from the moment it is enqueued to its turn; of a graph, as long as that.
struct HostKernels::Turn {
  HostKernels* owner = nullptr;
  KernelCall call;
  ListedSlots slots;
};

Result<std::shared_ptr<void>> StageKernels::capture(
    const KernelCall& /*call*/, const std::vector<std::pair<SlotRef, SlotMemory>>& /*slots*/,
    StreamHandle /*stream*/) {
  return fail(ErrorCode::kUnsupported, "the kernels of this rank cannot be captured");
}

SlotMemory ListedSlots::slot(SlotRef ref) {
  for (const auto& [known, memory] : slots_) {
    if (known.slot_class != ref.slot_class) continue;
    if (known.microbatch == ref.microbatch || known.microbatch == kNoMicrobatch) return memory;
  }
  return {};
}

void HostKernels::run(void* argument) {
  const std::unique_ptr<Turn> turn(static_cast<Turn*>(argument));
  run_again(turn.get());
}

void HostKernels::run_again(void* argument) {
  auto* const turn = static_cast<Turn*>(argument);
  HostKernels& own = *turn->owner;
  {
    const std::lock_guard lock(own.mutex_);
    if (own.error_) return;  // after a failure nothing more is computed
  }
  // Branches of graphs may run at one time, and workers of one process are not made for that.
  static std::mutex one_at_a_time;
  const std::lock_guard turn_taken(one_at_a_time);
  Status status = own.worker_->launch(turn->call, turn->slots);
  if (status) return;
  const std::lock_guard lock(own.mutex_);
  own.error_ = std::move(status.error());
}

Status HostKernels::bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle /*stream*/) {
  return worker_->bind(slot, memory);
}

Status HostKernels::launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                           StreamHandle stream) {
  auto turn = std::make_unique<Turn>(Turn{this, call, ListedSlots(slots)});
  PL_CUDA(*libraries_, cudaLaunchHostFunc, stream, &HostKernels::run, turn.get());
  turn.release();  // run() owns it now
  return {};
}

Result<std::shared_ptr<void>> HostKernels::capture(const KernelCall& call,
                                                   const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                                                   StreamHandle stream) {
  auto turn = std::make_shared<Turn>(Turn{this, call, ListedSlots(slots)});
  PL_CUDA(*libraries_, cudaLaunchHostFunc, stream, &HostKernels::run_again, turn.get());
  return std::shared_ptr<void>(std::move(turn));
}

std::optional<Error> HostKernels::error_so_far() {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace plumbline::cuda
