// Collectives: the i-th collective call of each member of a communicator is one collective (N57). It happens
// once active on all members, also where the contract would let some leave earlier (N59: worst case).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/program/link.h"
#include "engine/runtime/reduce_nccl.h"
#include "sim/entry.h"

namespace plumbline::sim {

class Collectives {
 public:
  explicit Collectives(std::vector<Entry>& entries) : entries_(&entries) {}

  void begin_step(const LinkedProgram& linked);
  // The LinkedProgram has more communicators than before.
  void grow() { states_.resize(linked_->communicators.size()); }
  // `entry` of the member at `position` is active. Returns the entries of all members, in member order, when
  // it was the last one missing; else nothing.
  std::vector<EntryId> activate(std::int32_t communicator, std::int32_t position, EntryId entry);

  // The active call of a member leaves: its collective will never happen.
  void drop(std::int32_t communicator, std::int32_t position, EntryId entry);
  // Whether some call of the member was dropped.
  bool dropped(std::int32_t communicator, std::int32_t position) const;

  // How many calls of the member are or were active, and whether its call number `index` is.
  std::uint32_t activated(std::int32_t communicator, std::int32_t position) const;

 private:
  struct Call {
    std::uint32_t arrived = 0;
    EntryId first = 0;  // chained by Entry::next
  };
  struct State {
    std::vector<std::uint32_t> count;  // calls of each member so far
    std::vector<bool> dropped;         // by member; empty: none
    std::deque<Call> calls;            // those that some members have made, from number `base` on
    std::uint32_t base = 0;
  };
  std::vector<Entry>* entries_;
  const LinkedProgram* linked_ = nullptr;
  std::vector<State> states_;
};

// In words how two members' calls differ (kind, size, place in the slot, root, element type, reduction); empty:
// they agree. NCCL does not know places; another one means another bucket, as a label does for messages.
std::string collective_difference(const Endpoint& a, Rank root_a, const Endpoint& b, Rank root_b);

// Does the arithmetic of a collective in place. `slots` is one a member, in member order, null where there is
// no memory (then nothing is done); `root` is a position. The smallest of the slots' sizes bounds what is
// touched.
void run_collective(const Endpoint& endpoint, std::int32_t root, Bytes bytes,
                    const std::vector<std::byte*>& slots, const CollectiveNumerics& numerics = {});

}  // namespace plumbline::sim
