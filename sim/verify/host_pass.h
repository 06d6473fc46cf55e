// Host pass: one walk over a rank's items in host order, without looking at other ranks. It settles the
// buffer rules (write before read, no read after release, no second write while live, releases after the last
// reader, no leaks), memory, the trace hash, and what the other passes need to know ahead: where a connection
// is used for the first time, which group the host has waited for by then, and what each decision rests on.
// Ranks that share a range of items share the result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sim/verdict.h"
#include "sim/verify/sync_events.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

// First use of a p2p endpoint in an arm.
struct FirstUse {
  std::uint32_t item = 0;
  std::uint32_t group = 0;  // first item of its group
  // The host gets there once its device has got to this item: the one after the last group that the host waits for, or,
  // where no group comes before its wait, after the wait; 0: it does not wait.
  std::uint32_t need = 0;
  bool overtakes = false;  // the last wait of the host before it is over before all earlier groups are
};

struct Decision {
  std::uint32_t item = 0;
  std::uint32_t writer = kNone32;  // the item that wrote the variable's slot last
};

struct RangeFacts {
  std::vector<Finding> findings;
  RankMemory memory;
  std::uint64_t hash = 0;
  std::int64_t operations = 0;
  std::array<ScratchVector<FirstUse>, 2> first_uses;  // arm yes, arm no; host order
  ScratchVector<Decision> decisions;
  ScratchVector<std::uint32_t> armed;  // items: first use of each endpoint inside an arm
  ScratchVector<std::pair<std::uint32_t, std::uint64_t>>
      tallies;                    // kernel, sum of its microbatches' tallies (coverage.h), in no order
  ScratchVector<SyncEvent> sync;  // for check_gradient_sync; empty when no optimizer steps
  bool mixed_groups = false;      // some group may be more than one kernel
  int streams = 1;                // one more than the highest stream named
};

struct HostTables;
class OrderedPass;

class HostPass {
 public:
  enum class Kind : std::uint8_t {
    kAny,      // the ordered pass (ordered_pass.h) where it accepts the rank
    kGeneral,  // for tests: always the general pass
  };
  explicit HostPass(const CheckWorld& world, Kind kind = Kind::kAny);
  ~HostPass();
  HostPass(const HostPass&) = delete;
  HostPass& operator=(const HostPass&) = delete;

  // Items of this thread; findings name its rank. `facts` is fresh.
  void run(std::size_t thread, RangeFacts& facts);

 private:
  RangeFacts general(std::size_t thread);

  Kind kind_;
  std::unique_ptr<HostTables> tables_;
  std::unique_ptr<OrderedPass> ordered_;
};

}  // namespace plumbline::verify
