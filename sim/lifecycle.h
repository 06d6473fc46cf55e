// Lifecycle: which communicators exist, and the meetings of hosts that create and end them (N69-N80). It keeps
// states and tells who has arrived; what is enqueued on devices belongs to World.
//
// The k-th creation of a communicator by one member meets the k-th of every other; the k-th split or shrink of a
// parent likewise, whatever it makes. A call refused at its start has no effect and takes part in no meeting. A turn
// is a meeting too, though nothing of NCCL: where one host thread drives several ranks, it goes from one to the next
// (N17).
//
// Errors. A communicator's first asynchronous error stays (N82): every call on it returns it, until it is aborted.
// Where a process ends, meetings are held over its sockets (N83): of members of an existing communicator, all who
// wait for it or come later get ncclRemoteError; of an init, only if it had come to it before - else they wait for
// ever, unless it was the first member, which holds the bootstrap's root: who comes after its end gets
// ncclSystemError. In truth its neighbours in the bootstrap's ring are told, and the others when those abort.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/program/link.h"
#include "sim/device_graph.h"

namespace plumbline::sim {

// Why a call returns an error at once.
struct Refusal {
  std::string code;  // "ncclInvalidArgument"
  std::string rule;  // "N79"
  std::string why;   // "communicator pp has been destroyed"
};

class Lifecycle {
 public:
  void begin_step(const LinkedProgram& linked);
  // The LinkedProgram has more communicators than before: they do not exist until calls create them.
  void grow();

  // An operation, and a call on communicators, is issued by the member; nothing: it may go on.
  std::optional<Refusal> use(std::int32_t communicator, std::int32_t position) const;
  std::optional<Refusal> check(const CommCall& call, const LinkedCommCall& linked) const;

  // The call passes its check and is issued as `node`: its state begins.
  void issue(NodeId node, const CommCall& call, const LinkedCommCall& linked);
  // The call's host is there, and what had to complete before is complete. Returns the calls that are over by
  // that, this one among them or not.
  std::vector<NodeId> arrive(NodeId node);

  // The member's first asynchronous error. False: it has one, or is beyond errors.
  bool fail(std::int32_t communicator, std::int32_t position, std::string code);
  const std::string& error(std::int32_t communicator, std::int32_t position) const {
    return member(communicator, position).error;
  }
  // The process of the rank ends: it takes no further part.
  void end_process(Rank rank);
  // A call whose meeting the end of a process broke off.
  struct Broken {
    NodeId node = 0;
    Refusal refusal;
  };
  // Those since the last time.
  std::vector<Broken> take_broken() { return std::exchange(broken_, {}); }
  // A member of the communicator whose process has ended, as a position; -1: none.
  std::int32_t ended(std::int32_t communicator) const;

  // A nonblocking operation of the member sets up connections until `node` is over (N79); 0: it has them.
  void set_connecting(std::int32_t communicator, std::int32_t position, NodeId node);
  // The call that a poll of this member waits for; 0: none.
  NodeId pending(std::int32_t communicator, std::int32_t position) const;
  // Whether it was created with config.blocking = 1, or exists from the start.
  bool blocking(std::int32_t communicator, std::int32_t position) const;

  // For explanations: a call that is issued and not over.
  struct Waiting {
    std::int32_t communicator = -1;     // whose members meet
    std::vector<std::int32_t> missing;  // positions that have not arrived
    std::uint32_t number = 0;           // which of the member's calls of this kind of meeting, from 0
    bool turn = false;                  // of one host thread that drives the members, not of NCCL
  };
  Waiting waiting(NodeId node) const;
  // The member's call that belongs to the meeting of `node`: its node if it is issued, else 0.
  NodeId counterpart(NodeId node, std::int32_t position) const;
  // Whether a member's future call of this row would belong to the kind of meeting `node` waits in.
  bool same_meeting(NodeId node, const CommCall& call, const LinkedCommCall& linked) const;

 private:
  enum class State : std::uint8_t { kAbsent, kJoining, kReady, kFinalized, kRevoked, kDestroyed, kAborted };
  enum class Kind : std::uint8_t { kInit, kFromParent, kDestroy, kTurn, kNone };
  struct Member {
    State state = State::kReady;
    bool blocking = true;
    bool ended = false;  // its process
    std::string error;   // the first asynchronous one; empty: none
    NodeId pending = 0;
    NodeId connecting = 0;  // a nonblocking operation sets up connections until this; 0: none does
    std::uint32_t calls[4] = {0, 0, 0, 0};  // by Kind
  };
  // kind, communicator that meets, number
  using Key = std::tuple<Kind, std::int32_t, std::uint32_t>;
  struct Meeting {
    std::vector<NodeId> nodes;  // by position; 0: not arrived
    std::size_t arrived = 0;
    std::size_t needed = 0;
    bool broken = false;  // a member's process ended
  };
  struct Call {
    Kind kind = Kind::kNone;
    Key key;
    std::int32_t position = -1;                         // in the communicator that meets
    std::int32_t communicator = -1, own_position = -1;  // what is made or ended; -1: nothing
    bool creates = false;
    std::int32_t release = 0;  // of the caller's NCCL; 0: not said
  };

  static Kind kind_of(CommCallKind kind);
  Member& member(std::int32_t communicator, std::int32_t position);
  const Member& member(std::int32_t communicator, std::int32_t position) const;
  const std::string& name(std::int32_t communicator) const {
    return linked_->communicators[static_cast<std::size_t>(communicator)].name;
  }
  // The communicator whose members meet for a call, and the caller's place in it.
  static std::pair<std::int32_t, std::int32_t> meets_in(const CommCall& call, const LinkedCommCall& linked);

  std::optional<Refusal> sticky(std::int32_t communicator, std::int32_t position) const;
  std::optional<Refusal> root_ended(const LinkedCommCall& linked) const;
  bool differ(const Meeting& meeting);
  void break_off(const Key& key, Meeting& meeting);
  void mark_ended();

  const LinkedProgram* linked_ = nullptr;
  std::vector<std::vector<Member>> members_;  // [communicator][position]
  std::map<Key, Meeting> meetings_;
  std::map<NodeId, Call> calls_;
  std::vector<Broken> broken_;
  std::vector<Rank> ended_;  // ranks whose process has
};

}  // namespace plumbline::sim
