// What a rank does to gradients and parameters, in host order on the arm that steps: the part of its items that
// check_gradient_sync looks at. Only for gradient_sync.cc.
#pragma once

#include <cstdint>
#include <utility>
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
  // Events of one thread. Repeats of kAdd and kRead on one slot are left out while nothing else happens to it.
  ScratchVector<SyncEvent> events(std::size_t thread);

  // The same for who walks a thread's items anyway: begin(), then launch() or operation() for each item that is
  // executed on the arm that steps, take() at the end. What may be left out: a kernel that repeats() while happened()
  // is what it was after its last launch(), and endpoints that it does not look at.
  void begin();
  void launch(unsigned kernel, std::uint32_t item) {
    for (std::uint32_t e = first_effect_[kernel]; e < first_effect_[kernel + 1]; ++e)
      put(effects_[e].kind, effects_[e].slot, item);
  }
  void operation(unsigned endpoint, std::uint32_t item);
  ScratchVector<SyncEvent> take() { return std::move(events_); }

  // Moves with every event; 0 when there is nothing to look at.
  std::uint32_t happened() const { return steps_ ? static_cast<std::uint32_t>(events_.size()) + 1 : 0; }
  bool repeats(unsigned kernel) const { return repeats_[kernel] != 0; }
  bool looks_at(unsigned endpoint) const { return endpoints_[endpoint] != 0; }

 private:
  struct Effect {
    SyncKind kind;
    std::uint16_t slot;
  };
  void add_kernel(const Kernel& kernel);
  void put(SyncKind kind, std::uint16_t slot, std::uint32_t item) {
    const bool repeats = kind == SyncKind::kAdd || kind == SyncKind::kRead;
    if (repeats && last_[slot] == static_cast<std::uint8_t>(kind)) return;
    last_[slot] = static_cast<std::uint8_t>(kind);
    events_.push_back({kind, slot, item});
  }

  const Program& program_;
  ScratchStack<Effect> effects_;
  RawVector<std::uint32_t> first_effect_;  // by kernel, one more at the end
  RawVector<std::uint8_t> endpoints_;      // 0: nothing, 1: kReduce, 2: kGather
  RawVector<std::uint8_t> repeats_;        // by kernel: has no effect but kAdd and kRead
  // Of the walk in progress.
  ScratchVector<SyncEvent> events_;
  ScratchVector<std::uint8_t> last_;  // by slot: what happened to it last
  bool steps_ = false;
};

}  // namespace plumbline::verify
