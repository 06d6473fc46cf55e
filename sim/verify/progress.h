// Progress: do all devices get to their ends under rendezvous and strict host order, with connections as
// ColdConnect lets them? In strict host order a device executes its groups one after another, so a cursor a
// rank over its items is the whole state of its device; host waits refer to earlier groups and cost no state
// of their own. Every item is visited once.
//
// Two virtual times ride along: lane 0 of the certification mode, lane 1 of the default mode (rendezvous,
// free, warm), whose edges are a subset, so that this order is a legal one for it too.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/verify/cold.h"
#include "sim/verify/timing.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

// Where a device stands.
struct alignas(64) Cursor {
  std::uint32_t item = 0;  // of a group in execution: its first item
  std::uint32_t end = 0;
  std::uint32_t group_end = 0;  // while active
  std::uint32_t stop = kNone32;
  std::uint32_t port_offset = 0;   // CheckWorld::port_offset of the thread
  std::int32_t pending = 0;        // entries of the current phase that have not completed
  bool active = false;             // the group at `item` is in execution
  bool mixed = false;              // groups may be more than one kernel
  bool parked = false;             // waits for its stop to move, or for the next decision to open
  std::uint32_t member = kNone32;  // of the phase's communicator
  std::uint64_t phase = 0;
  Lanes host{}, begin{}, finish{}, last_group{};
};

// Messages of a link whose one end is active and waits. All belong to one group.
struct alignas(64) LinkState {
  std::uint64_t label = 0;
  Lanes begin{};
  Lanes free_at{};         // a link moves one message at a time
  std::int32_t count = 0;  // above 0: sends wait, below 0: receives
  std::uint32_t item = 0;  // the oldest
};

struct MemberState {
  std::uint32_t active = 0;  // collectives begun
  std::uint32_t done = 0;    // collectives completed
  std::uint32_t item = 0;    // the oldest begun and not completed
  Lanes begin{};
  Nanoseconds free_at = 0;  // lane 1: end of the communicator's last kernel on this rank
};

struct CommunicatorState {
  std::uint32_t index = 0;     // collectives completed by all
  std::uint32_t arrivals = 0;  // members that have begun the next one
};

class Progress {
 public:
  // `facts_of[t]`: facts of the range of items of thread t. `world` outlives this. A copy goes on
  // independently: it is how both arms of a decision are walked.
  Progress(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of,
           std::optional<Timing> timing);

  // Runs until nothing moves. kNone stops every device before its first decision; a later call goes on from
  // there.
  void run(Arm arm, ColdConnect& cold);

  bool completed() const;
  bool mismatched() const { return mismatched_; }  // some match was not equal at both ends
  Lanes makespan() const;                          // once completed
  const ScratchVector<Cursor>& cursors() const { return cursors_; }
  // The entry `item` of the phase that is active at `thread` has begun and not completed.
  bool incomplete(std::uint32_t thread, std::uint32_t item) const;
  const MemberState& member(std::uint32_t number) const { return members_[number]; }

 private:
  template <bool kTimed>
  void drain(ColdConnect& cold);
  template <bool kTimed>
  void advance(std::uint32_t thread, ColdConnect& cold);
  template <bool kTimed>
  bool begin_group(std::uint32_t thread, Cursor& cursor, ColdConnect& cold);
  template <bool kTimed>
  void begin_phase(std::uint32_t thread, Cursor& cursor);
  template <bool kTimed>
  void activate_p2p(std::uint32_t thread, Cursor& cursor, const Port& port, std::uint32_t item);
  template <bool kTimed>
  void activate_collective(std::uint32_t thread, Cursor& cursor, const Port& port, std::uint32_t item);
  template <bool kTimed>
  void complete_collective(std::uint32_t current, std::uint32_t communicator);
  void next_collective(std::uint32_t thread, MemberState& member, std::uint32_t number);
  void next_message(std::uint32_t thread, LinkState& link, std::uint32_t number);
  bool next_phase(Cursor& cursor) const;
  const Port& port_of(const Cursor& cursor, unsigned endpoint) const {
    return world_->ports[cursor.port_offset + endpoint];
  }
  void entry_done(std::uint32_t current, std::uint32_t thread);
  bool enter(std::uint32_t thread, Cursor& cursor, ColdConnect& cold);

  const CheckWorld* world_;
  std::optional<Timing> timing_;
  unsigned skip_ = 0;
  bool decisions_open_ = false;
  bool mismatched_ = false;
  ScratchVector<Cursor> cursors_;
  ScratchVector<LinkState> links_;
  ScratchVector<MemberState> members_;
  ScratchVector<CommunicatorState> communicators_;
  ScratchVector<std::uint32_t> work_;
};

}  // namespace plumbline::verify
