// What a rank does to gradients and parameters, in host order on the arm that steps: the part of its items that
// check_gradient_sync looks at. Only for gradient_sync.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/verify/world.h"

namespace plumbline::verify {

enum class SyncKind : std::uint8_t {
  kZero,     // the gradients become zero
  kAdd,      // a backward adds to them
  kReduce,   // a sum over ranks, of all or a part
  kUnscale,  // divided by the loss scale
  kUse,      // their norm is taken, or a step reads them
  kStep,     // the step changes the parameters (replicated ones have no slot: `slot` is the gradients')
  kGather,   // shards become whole parameters, of all or a part
  kRead,     // a computation reads parameters
};

// Kernels of other kinds do nothing to gradients and parameters that check_gradient_sync would look at.
constexpr unsigned kind_bit(KernelKind kind) { return 1u << static_cast<unsigned>(kind); }
constexpr unsigned kSyncKernels = kind_bit(KernelKind::kForward) | kind_bit(KernelKind::kBackward) |
                                  kind_bit(KernelKind::kInputGrad) | kind_bit(KernelKind::kWeightGrad) |
                                  kind_bit(KernelKind::kZeroGrad) | kind_bit(KernelKind::kUnscaleCheck) |
                                  kind_bit(KernelKind::kNormSums) | kind_bit(KernelKind::kOptimizerStep) |
                                  kind_bit(KernelKind::kSpeculativeStep);

struct SyncEvent {
  SyncKind kind = SyncKind::kAdd;
  std::uint16_t slot = 0;  // of gradients or parameters
  std::uint32_t item = 0;
};

class SyncTables {
 public:
  explicit SyncTables(const Program& program);

  // Whether some kernel steps an optimizer that reads gradients; without one there is nothing to check.
  bool steps() const { return steps_; }
  // Events of one thread. Repeats of kAdd and kRead on one slot are left out while nothing else happens to it.
  ScratchVector<SyncEvent> events(std::size_t thread);

  // The same for who walks a thread's items anyway: begin(), then launch() or operation() for each item that is
  // executed on the arm that steps, take() at the end. What may be left out: kernels and endpoints that have no effect;
  // and a kernel that repeats(), while happened() is what it was after its last launch().
  void begin();
  bool launch(unsigned kernel, std::uint32_t item);  // whether the kernel has an effect
  void operation(unsigned endpoint, std::uint32_t item);
  ScratchVector<SyncEvent> take() const { return {events_.begin(), events_.end()}; }

  // Moves with every event.
  std::size_t happened() const { return events_.size(); }
  // What a kernel that computes does is kAdd and kRead; others do neither.
  bool repeats(unsigned kernel) const { return is_computation(program_.kernels[kernel].kind); }
  // Others have no effect; nor have kernels and endpoints that touch no slot of such a class.
  static bool looks_at(KernelKind kind) { return (kSyncKernels & kind_bit(kind)) != 0; }
  static bool looks_at(SlotKind kind) {
    return kind == SlotKind::kMainGrads || kind == SlotKind::kParameters;
  }

 private:
  bool put(SyncKind kind, SlotKind of, const RowList& slots, std::uint32_t item);
  void put(SyncKind kind, std::uint16_t slot, std::uint32_t item) {
    const bool repeats = kind == SyncKind::kAdd || kind == SyncKind::kRead;
    const std::uint32_t now = walk_ * 16 + static_cast<std::uint32_t>(kind);
    if (repeats && last_[slot] == now) return;
    last_[slot] = now;
    events_.push({kind, slot, item});
  }

  const Program& program_;
  bool steps_ = false;
  std::uint32_t walk_ = 0;             // number of the walk in progress
  ScratchStack<SyncEvent> events_;     // of it
  ScratchVector<std::uint32_t> last_;  // by slot: walk * 16 + what happened to it last
};

}  // namespace plumbline::verify
