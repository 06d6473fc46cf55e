// ColdConnections: the host rendezvous of a first use (N2). Before a group is enqueued, a communicator that
// has a new (peer, direction) in it exchanges messages with those peers' hosts, by distance: at place p of n,
// for d = 1 .. n-1, the host posts a message to p+d if it newly sends there and to p-d if it newly receives
// from there, then waits for one from each; and all of that twice (A sets up, B synchronizes). So a host can
// wait for a peer that waits for a third.
//
// Where p+d and p-d are one rank, a single message speaks for both directions and both sides take it for the
// mirror image of their own. When it is not, the connection is cross-wired; when it also differs in length,
// both hosts fail there.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/program/link.h"

namespace plumbline::sim {

struct Direction {
  std::int32_t peer = 0;  // position in the communicator
  bool send = false;
  auto operator<=>(const Direction&) const = default;
};

struct ConnectFault {
  std::uint32_t thread = 0;
  std::int32_t communicator = 0;
  std::int32_t peer = 0;
  bool truncated = false;  // internal error: the host stops
};

// Which directions are connected, by communicator name, so that it holds for all Programs of a run.
using ConnectionMap = std::map<std::string, std::vector<std::vector<Direction>>>;

class ColdConnections {
 public:
  void begin_step(const LinkedProgram& linked, ConnectionMap& map);
  // The LinkedProgram has more communicators than before.
  void grow(ConnectionMap& map);

  // The member's communicator is made anew: nothing of it is connected.
  void forget(std::int32_t communicator, std::int32_t position);
  bool connected(std::int32_t communicator, std::int32_t position, Direction direction) const;
  // A thread is an agent of World: a host thread, or one that works for a nonblocking call.
  // The thread's host enters the exchange of one communicator for the given new directions (sorted, not
  // empty).
  void begin(std::uint32_t thread, std::int32_t communicator, std::int32_t position,
             std::vector<Direction> fresh);
  // The thread's host leaves the exchange it is in; what it has posted stays.
  void cancel(std::uint32_t thread);
  // Runs exchanges as far as they go. Returns the threads whose exchange is over, in the order in which it
  // came to be.
  std::vector<std::uint32_t> run();
  std::vector<ConnectFault> take_faults() { return std::exchange(faults_, {}); }

  // For the explanation of a deadlock: whose messages the thread's host still waits for (positions; empty:
  // not waiting).
  struct Waiting {
    std::int32_t communicator = -1;
    std::vector<std::int32_t> peers;
    bool failed = false;
  };
  Waiting waiting(std::uint32_t thread) const;

 private:
  // communicator, from, to, distance, pass
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, int>;
  struct Message {
    bool send = false;
    bool recv = false;
    bool operator==(const Message&) const = default;
  };
  struct Exchange {
    std::int32_t communicator = -1;  // -1: none
    std::int32_t position = 0;
    std::int32_t members = 0;
    std::vector<Direction> fresh;
    int pass = 0;
    std::int32_t distance = 1;
    bool posted = false;
    bool failed = false;
    std::vector<std::int32_t> awaited;  // peers whose message of this distance has not come
  };

  Message own_message(const Exchange& exchange, std::int32_t peer) const;
  void post(Exchange& exchange);
  bool receive(std::uint32_t thread, Exchange& exchange);
  bool advance(std::uint32_t thread);

  const LinkedProgram* linked_ = nullptr;
  std::vector<std::vector<std::vector<Direction>>*>
      connected_;                    // [communicator] -> [position] -> sorted directions
  std::vector<Exchange> exchanges_;  // by thread
  std::map<Key, std::deque<Message>> mailboxes_;
  std::map<Key, std::uint32_t> readers_;  // who waits at an empty mailbox
  std::vector<std::uint32_t> runnable_;
  std::vector<ConnectFault> faults_;
};

}  // namespace plumbline::sim
