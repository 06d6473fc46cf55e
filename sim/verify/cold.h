// ColdConnect: first use of a (communicator, peer, direction) is a rendezvous of hosts (N2). A host that reaches a group
// with new directions runs, before the group is enqueued, two passes over the distances 1 .. n-1: it posts a message to the
// peer it will send to and to the one it will receive from, and waits for one from each. No later host operation happens
// before. Where both peers are the same rank (half the size away), one message carries both directions, and peers that do
// not set up mirror images of each other are cross-wired.
//
// In strict host order this is the only thing besides a group that holds a rank up, so it gives every device a position
// at which it must stop: stop(thread).
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
  ColdConnect(const CheckWorld& world, const std::vector<const RangeFacts*>& facts_of, Arm arm);

  // Lets the hosts go as far as they get when the device of `thread` stands before item `device` with everything earlier
  // complete. Threads whose stop has changed are in changed() until the next call.
  void advance(std::uint32_t thread, std::uint32_t device);
  void start();
  const std::vector<std::uint32_t>& changed() const { return changed_; }

  // The device may not begin a group at this item or later; kNone32: no limit. It says so by advance() when it gets there.
  std::uint32_t stop(std::uint32_t thread) const { return states_[thread].stop; }

  // Some host waits for a device before it connects: then virtual times depend on this protocol.
  bool entangled() const { return entangled_; }

  struct Blocked {
    std::uint32_t item = kNone32;      // the operation whose connection is set up; kNone32: the host is not blocked here
    bool halted = false;               // an internal error has stopped the host for good
    std::uint32_t need = 0;            // not 0: the host still waits for its device to complete what precedes this item
    std::vector<std::uint32_t> peers;  // threads whose messages are missing
  };
  Blocked blocked(std::uint32_t thread) const;

  std::vector<Finding> findings() const { return findings_; }

 private:
  // One distance of one pass.
  struct Step {
    std::uint32_t item = 0;          // an operation that needs it
    std::uint32_t group = 0;         // first item of its group
    std::uint32_t need = 0;          // for the first step of a group
    std::uint32_t send = kNone32;    // link set up for sending
    std::uint32_t receive = kNone32;
    std::uint8_t pass = 0;
  };
  struct State {
    std::uint32_t step = 0;  // index into steps_
    std::uint32_t end = 0;
    std::uint32_t device = 0;
    std::uint32_t stop = kNone32;
    bool posted = false;
    bool halted = false;
  };
  // Messages from a link's source to its destination about both directions, oldest first.
  struct MirrorBox {
    std::array<std::uint8_t, 2> content{};
    std::uint8_t posted = 0;
    std::uint8_t taken = 0;
  };

  void add_steps(std::uint32_t thread, const RangeFacts& facts, Arm arm);
  void add_group(std::uint32_t thread, std::vector<Step>& fresh);
  bool run_step(std::uint32_t thread, const Step& step);
  void post(std::uint32_t thread, const Step& step);
  bool arrived(const Step& step) const;
  void take_mirrored(std::uint32_t thread, const Step& step);
  void host(std::uint32_t thread);
  void update_stop(std::uint32_t thread);
  std::uint32_t outgoing(const Step& step) const { return step.send != kNone32 ? step.send : step.receive ^ 1u; }
  bool mirrored(const Step& step) const { return world_->links[outgoing(step)].mirrored; }
  std::uint8_t& note(std::uint32_t link, bool from_sender, unsigned pass) { return notes_[note_index(link, from_sender, pass)]; }
  std::size_t note_index(std::uint32_t link, bool from_sender, unsigned pass) const {
    return (static_cast<std::size_t>(link) * 2 + (from_sender ? 1 : 0)) * 2 + pass;
  }

  const CheckWorld* world_;
  std::vector<Step> steps_;
  std::vector<State> states_;
  std::vector<std::uint8_t> notes_;      // one-directional messages posted, by link, side and pass
  std::vector<MirrorBox> boxes_;         // by link and pass
  std::vector<std::uint8_t> connected_;  // by link: bit 0 its source has set it up, bit 1 its destination has
  std::vector<std::uint32_t> work_, changed_;
  std::vector<Finding> findings_;
  bool entangled_ = false;
};

}  // namespace plumbline::verify
