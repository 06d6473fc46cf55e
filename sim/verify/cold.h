// ColdConnect: first use of a (communicator, peer, direction) is a rendezvous of hosts (N2). A host that
// reaches a group with new directions runs, before the group is enqueued, two passes over the distances 1 ..
// n-1: it posts a message to the peer it will send to and to the one it will receive from, and waits for one
// from each. No later host operation happens before. Where both peers are the same rank (half the size away),
// one message carries both directions, and peers that do not set up mirror images of each other are
// cross-wired.
//
// In strict host order this is the only thing besides a group that holds a rank up, so it gives every device
// a position at which it must stop and ask: stop(thread), enter().
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/verdict.h"
#include "sim/verify/host_pass.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

class ColdConnect {
 public:
  // `facts_of[t]`: facts of the range of items of thread t.
  ColdConnect(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of, Arm arm);

  // Before the first enter(): lets the hosts go as far as they get by themselves.
  void start();

  // The device of `thread` stands before the group at `item`, everything earlier complete, and its host's
  // waits before it are over at `host`. True: the group may begin, and `host` is when its host has set up its
  // connections. Other threads whose stop has moved are in changed().
  bool enter(std::uint32_t thread, std::uint32_t item, Nanoseconds& host);
  const ScratchStack<std::uint32_t>& changed() const { return changed_; }

  // No group at this item or later may begin without enter(); kNone32: no limit.
  std::uint32_t stop(std::uint32_t thread) const { return states_[thread].stop; }

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
  // One distance of one pass.
  struct Step {
    std::uint32_t item = 0;        // an operation that needs it
    std::uint32_t group = 0;       // first item of its group
    std::uint32_t need = 0;        // for the first step of a group
    std::uint32_t send = kNone32;  // link set up for sending
    std::uint32_t receive = kNone32;
    std::uint8_t pass = 0;
    bool mirrored = false;
    std::uint32_t closes = 0;  // the group that is set up with this step, index into groups_; 0: none
    // Not mirrored: the messages it posts and awaits, indices into notes_, and to whom. Of a direction that is not set
    // up, what nobody reads, what is always there, and the thread itself.
    std::array<std::uint32_t, 2> posts{kSink, kSink};
    std::array<std::uint32_t, 2> awaits{kAlways, kAlways};
    std::array<std::uint32_t, 2> peers{};
  };
  static constexpr std::uint32_t kAlways = 0, kSink = 1, kFirstNote = 2;
  // A group that sets up connections.
  struct Group {
    std::uint32_t item = 0;  // its first
    std::uint32_t last_step = 0;
    Nanoseconds over = 0;  // when its connections are set up
  };
  struct State {
    std::uint32_t step = 0;  // index into steps_
    std::uint32_t end = 0;
    std::uint32_t group = 0;  // the next that the device begins, index into groups_
    std::uint32_t group_end = 0;
    std::uint32_t device = 0;
    std::uint32_t stop = kNone32;
    Nanoseconds waited = 0;  // when the host's waits up to `device` are over
    Nanoseconds time = 0;    // when the host got where it is
    bool posted = false;
    bool halted = false;
  };
  // Messages from a link's source to its destination about both directions, oldest first.
  struct MirrorBox {
    std::array<std::uint8_t, 2> content{};
    std::array<Nanoseconds, 2> time{};
    std::uint8_t posted = 0;
    std::uint8_t taken = 0;
  };

  void add_steps(std::uint32_t thread, const RangeFacts& facts, Arm arm);
  void add_group(std::uint32_t thread);
  std::size_t merge_fresh();
  void add_step(std::uint32_t thread, const Step& model, std::uint8_t pass);
  std::uint64_t key(const Step& step) const;
  bool run_step(std::uint32_t thread, const Step& step);
  void post(std::uint32_t thread, const Step& step);
  void wake(std::uint32_t thread, std::uint32_t other) {
    // A host that waits for anything else than messages will look when it gets there.
    const bool looks = starting_ || states_[other].posted;
    work_.push_if((other != thread) & looks, other);
  }
  // When the messages of a step were all there; below 0: some are missing.
  Nanoseconds arrived(const Step& step) const;
  void run_hosts();
  void take_mirrored(std::uint32_t thread, const Step& step);
  void host(std::uint32_t thread);
  void update_stop(std::uint32_t thread);
  std::uint32_t outgoing(const Step& step) const {
    return step.send != kNone32 ? step.send : step.receive ^ 1u;
  }
  static std::uint32_t note_index(std::uint32_t link, bool from_sender, unsigned pass) {
    return kFirstNote + (link * 2 + (from_sender ? 1 : 0)) * 2 + pass;
  }

  const CheckWorld* world_;
  ScratchVector<Step> steps_;
  ScratchVector<Step> fresh_;  // of the group that is added
  ScratchVector<State> states_;
  ScratchVector<Group> groups_;  // the first is nobody's
  ScratchVector<Nanoseconds>
      notes_;  // kAlways, kSink, one-directional messages by link, side and pass: when posted; below 0: not yet
  ScratchVector<MirrorBox> boxes_;  // by link and pass
  ScratchVector<std::uint8_t>
      connected_;  // by link: bit 0 its source has set it up, bit 1 its destination has
  ScratchStack<std::uint32_t> work_, changed_;
  std::vector<Finding> findings_;
  bool overtakes_ = false;
  bool starting_ = false;  // some hosts have not been as far as they get by themselves
};

}  // namespace plumbline::verify
