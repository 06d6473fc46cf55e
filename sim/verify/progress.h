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

// Where a device stands. What others change while it waits is in the first line.
struct alignas(64) Cursor {
  std::uint32_t item = 0;  // of a group in execution: its first item
  std::uint32_t end = 0;
  std::uint32_t group_end = 0;  // while active
  std::uint32_t stop = kNone32;
  std::uint32_t port_offset = 0;   // CheckWorld::port_offset of the thread
  std::int32_t pending = 0;        // entries of the current phase that have not completed
  std::uint32_t member = kNone32;  // of the phase's communicator
  bool active = false;             // the group at `item` is in execution
  bool mixed = false;              // groups may be more than one kernel
  bool parked = false;             // waits for its stop to move, or for the next decision to open
  Lanes finish, host;
  Lanes last_group;                            // lane 0: the device takes one group after the other
  Lanes begin;                                 // of the phase; not kept for groups of messages alone
  std::uint64_t phase = 0;                     // where groups are mixed
  std::size_t first_tail = 0, first_cost = 0;  // of the thread's Timing::Track
};

// Messages of a link whose one end is active and waits. All belong to one group.
struct alignas(64) LinkState {
  Lanes begin;
  Lanes free_at;  // a link moves one message at a time
  std::uint64_t label = 0;
  std::int32_t count = 0;  // above 0: sends wait, below 0: receives
  std::uint32_t item = 0;  // the oldest
};

struct MemberState {
  std::uint32_t active = 0;  // collectives begun
  std::uint32_t done = 0;    // collectives completed
  std::uint32_t item = 0;    // the oldest begun and not completed
  Lanes begin;
  Lanes free_at;  // end of the communicator's last kernel on this rank
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
  // Once completed; not exact() where times are too long to tell.
  Lanes makespan() const;
  const ScratchVector<Cursor>& cursors() const { return cursors_; }
  // The entry `item` of the phase that is active at `thread` has begun and not completed.
  bool incomplete(std::uint32_t thread, std::uint32_t item) const;
  const MemberState& member(std::uint32_t number) const { return members_[number]; }

 private:
  struct Tables;
  Tables tables();
  template <bool kTimed>
  void drain(ColdConnect& cold);
  template <bool kTimed>
  void advance(const Tables& tables, std::uint32_t thread, ColdConnect& cold);
  template <bool kTimed>
  bool run_to_group(const Tables& tables, const Timing::Track& track, std::uint32_t thread, Cursor& cursor,
                    Lanes& host);
  template <bool kTimed>
  bool exchange(const Tables& tables, const Timing::Track& track, std::uint32_t thread, Cursor& cursor,
                const Port& last_port, Item last, Lanes& host);
  template <bool kTimed>
  bool mixed_group(std::uint32_t thread, const Timing::Track& track, Cursor& cursor, Item last);
  template <bool kTimed>
  bool phase_over(const Tables& tables, const Timing::Track& track, std::uint32_t thread, Cursor& cursor,
                  Lanes& host);
  template <bool kTimed>
  void end_group(const Tables& tables, const Timing::Track& track, std::uint32_t thread, Cursor& cursor,
                 Item last, const Lanes& finish, Lanes& host);
  template <bool kTimed>
  void begin_phase(std::uint32_t thread, Cursor& cursor);
  template <bool kTimed>
  void activate_p2p(const Tables& tables, std::uint32_t thread, std::uint32_t item, const Port& port,
                    const Lanes& begin, Lanes& finish, std::int32_t& pending);
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
  void wake(std::uint32_t thread) { work_.push_within(thread); }

  const CheckWorld* world_;
  std::optional<Timing> timing_;
  unsigned skip_ = 0;
  bool decisions_open_ = false;
  bool mismatched_ = false;
  ScratchVector<Cursor> cursors_;
  ScratchVector<LinkState> links_;
  ScratchVector<MemberState> members_;
  ScratchVector<CommunicatorState> communicators_;
  ScratchStack<std::uint32_t> work_;  // threads to go on with, each once
};

}  // namespace plumbline::verify
