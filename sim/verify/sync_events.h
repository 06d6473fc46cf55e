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
  // Of one thread. Repeats of kAdd and kRead on one slot are left out while nothing else happens to it.
  ScratchVector<SyncEvent> events(std::size_t thread);

 private:
  struct Effect {
    SyncKind kind;
    std::uint16_t slot;
  };
  void add_kernel(const Kernel& kernel);

  const Program& program_;
  ScratchVector<Effect> effects_;
  ScratchVector<std::uint32_t> first_effect_;  // by kernel, one more at the end
  ScratchVector<std::uint8_t> endpoints_;      // 0: nothing, 1: kReduce, 2: kGather
  // Of the walk in progress. A kernel whose effects can all repeat has nothing to add while nothing else happens.
  ScratchVector<std::uint8_t> last_;       // by slot: what happened to it last
  ScratchVector<std::uint8_t> repeats_;    // by kernel: has no effect but kAdd and kRead
  ScratchVector<std::uint32_t> quiet_at_;  // by kernel: how much had happened when it was last seen
  bool steps_ = false;
};

}  // namespace plumbline::verify
