// ColdConnect: first use of a (communicator, peer, direction) is a rendezvous of hosts (N2). A host that
// reaches a group with new directions runs, before the group is enqueued, two passes over the distances 1 ..
// n-1: it posts a message to the peer it will send to and to the one it will receive from, and waits for one
// from each. No later host operation happens before. Where both peers are the same rank (half the size away),
// one message carries both directions, and peers that do not set up mirror images of each other are
// cross-wired.
//
// A direction that is all its group sets up in its communicator, at both of its ends, needs one pass only: both
// hosts are past the first at the same moment and have nothing else to wait for in the second.
//
// In strict host order this is the only thing besides a group that holds a rank up, so it gives every device
// a position at which it must stop and ask: stop(thread), arrive(), admit().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sim/verdict.h"
#include "sim/verify/host_pass.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

class ColdConnect {
 public:
  // `facts_of[t]`: facts of the range of items of thread t.
  ColdConnect(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of, Arm arm);

  // Before the first arrive(): lets the hosts go as far as they get by themselves.
  void start();

  // The device of `thread` stands before the group at `item`, everything earlier complete, and its host's waits
  // before it are over at `host` (times as lanes.h keeps them). Its host goes on, and others with it; changed() holds
  // all other threads whose stop has moved, and maybe some whose has not.
  void arrive(std::uint32_t thread, std::uint32_t item, double host) {
    changed_.clear();
    State& state = states_[thread];
    state.device = item;
    state.waited = host;
    if (!state.posted && rows_[state.row].need <= item) run_hosts(thread);
  }
  const ScratchStack<std::uint32_t>& changed() const { return changed_; }

  // True: the group at `item`, before which the device of `thread` has arrived, may begin. `host` is then when its host
  // has set up its connections, if that is later.
  bool admit(std::uint32_t thread, std::uint32_t item, double& host) {
    State& state = states_[thread];
    const Row& row = rows_[state.group];
    if (row.group == item && row.next <= state.row) {
      host = std::max(host, rows_[row.next - 1].over);
      state.group = row.next;
    }
    return item < stop(thread);
  }

  // No group at this item or later may begin without arrive() and admit(); kNone32: no limit. Not before start().
  std::uint32_t stop(std::uint32_t thread) const {
    const State& state = states_[thread];
    return std::min(rows_[state.group].group, state.posted ? kNone32 : rows_[state.row].need);
  }

  // Some host connects after a wait that is over before all earlier groups are. When it gets there is then
  // more than one cursor a rank tells, and virtual times are not exact.
  bool overtakes() const { return overtakes_; }

  struct Blocked {
    std::uint32_t item =
        kNone32;          // the operation whose connection is set up; kNone32: the host is not blocked here
    bool halted = false;  // an internal error has stopped the host for good
    std::uint32_t need = 0;  // not 0: the host still waits for its device to complete what precedes this item
    ScratchVector<std::uint32_t> peers;  // threads whose messages are missing
  };
  Blocked blocked(std::uint32_t thread) const;

  std::vector<Finding> findings() const { return findings_; }

 private:
  // A direction that is set up, at one of its ends.
  struct End {
    std::uint32_t note;  // index into notes_ of its message of the first pass; the other end's is note ^ 1
    std::uint32_t peer;
    std::uint32_t link() const { return note >> 2; }
    bool receives() const { return (note & 1) != 0; }
  };
  // One distance of a set-up, which is one group in one communicator. Rows of a group are neighbours, and each
  // thread's last row is one that its host never gets past and that belongs to no group.
  struct Row {
    std::uint32_t item;       // an operation that needs it
    std::uint32_t group;      // first item of its group
    std::uint32_t need;       // the host begins once the device has got to this item
    std::uint32_t first;      // row of its set-up
    std::uint32_t next;       // the first row after its group
    bool last;                // of its set-up
    bool alone;               // not mirrored, and all of its set-up: one direction
    bool mirrored;            // one message a pass
    bool two;                 // it sends and receives
    std::array<End, 2> ends;  // the one that sends first; if not two, the first counts
    double over;              // when it is set up; not before it is
    unsigned directions() const { return two ? 2 : 1; }
  };
  struct State {
    std::uint32_t row = 0;    // where the host is
    std::uint32_t group = 0;  // the first row of the next group that the device begins
    std::uint32_t device = 0;
    bool second = false;  // pass
    bool posted = false;  // its messages of this row and pass
    bool halted = false;
    double waited = 0;  // when the host's waits up to `device` are over
    double time = 0;    // when the host got where it is
  };
  // Messages from a link's source to its destination about both directions, oldest first.
  struct MirrorBox {
    std::array<std::uint8_t, 2> content{};
    std::array<double, 2> time{};
    std::uint8_t posted = 0;
    std::uint8_t taken = 0;
  };

  void add_rows(std::uint32_t thread, const RangeFacts& facts, Arm arm);
  void add_row(const FirstUse& use, std::uint32_t number, End end, bool mirrored);
  std::uint32_t merge_rows(std::size_t first);
  void close_set_up(std::size_t first, std::size_t last);
  std::uint64_t key(const Row& row) const;
  void run_hosts(std::uint32_t entering);
  void host(std::uint32_t thread);
  void meet(std::uint32_t thread, State& state, Row& row);
  void post(State& state, const Row& row);
  void post_mirrored(const State& state, const Row& row);
  bool arrived(std::uint32_t thread, State& state, const Row& row);
  bool take_mirrored(std::uint32_t thread, State& state, const Row& row);
  void tell_cross_wired(std::uint32_t thread, const Row& row, unsigned theirs);
  static void go_on(State& state, Row& row);
  // A host that waits for anything else than messages will look when it gets there.
  void wake(std::uint32_t thread) { work_.push_if(starting_ | states_[thread].posted, thread); }
  static unsigned content(const Row& row);
  static std::uint32_t outgoing(const Row& row) {
    return row.ends[0].link() ^ (row.ends[0].receives() ? 1u : 0u);
  }

  const CheckWorld* world_;
  RawVector<Row> rows_;
  ScratchVector<State> states_;
  ScratchVector<double>
      notes_;  // by link, pass and end: when posted; below 0: not yet. Not of mirrored links
  ScratchVector<MirrorBox> boxes_;          // by link and pass; none before the first is needed
  ScratchVector<std::uint32_t> connected_;  // by link, what cold.cc says
  ScratchStack<std::uint32_t> work_, changed_;
  std::vector<Finding> findings_;
  bool overtakes_ = false;
  bool starting_ = false;  // some hosts have not been as far as they get by themselves
};

}  // namespace plumbline::verify
