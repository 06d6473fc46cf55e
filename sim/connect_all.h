// CollectiveConnections: the first collective of a communicator connects all its members (N3): each host waits
// inside the call until all have come to it. How many times a communicator does so in truth depends on the
// algorithms it chooses; here it is once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/program/link.h"

namespace plumbline::sim {

// By communicator name: whether all members are connected. Holds for all Programs of a run.
using CollectiveMap = std::map<std::string, bool>;

class CollectiveConnections {
 public:
  void begin_step(const LinkedProgram& linked, CollectiveMap& map);
  // There are more communicators than before.
  void grow(const LinkedProgram& linked, CollectiveMap& map);

  bool connected(std::int32_t communicator, std::int32_t position) const;
  void forget(std::int32_t communicator);
  // The thread's host is at its first collective. Returns the threads that may go on by that: none, or all.
  std::vector<std::uint32_t> arrive(std::uint32_t thread, std::int32_t communicator, std::int32_t position);

  // The thread's host waits no longer.
  void cancel(std::uint32_t thread);

  // For the explanation of a deadlock: positions the thread's host waits for; communicator -1: not waiting.
  struct Waiting {
    std::int32_t communicator = -1;
    std::vector<std::int32_t> missing;
  };
  Waiting waiting(std::uint32_t thread) const;

 private:
  struct State {
    bool* known = nullptr;
    std::vector<bool> arrived;
    std::vector<std::uint32_t> threads;
    std::size_t count = 0;
  };
  std::vector<State> states_;
};

}  // namespace plumbline::sim
