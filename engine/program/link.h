// LinkedProgram: endpoints resolved per rank, once. Communicator instances of all families get one global
// number; every (rank, endpoint) that some item of the rank uses gets its communicator, its position in it,
// and its peer.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/program/program.h"

namespace plumbline {

struct Communicator {
  std::string name;  // "pp[0]", "pair{2,3}"
  std::uint16_t family = 0;
  std::vector<Rank> members;
};

struct LinkedEndpoint {
  std::int32_t communicator = -1;  // -1: not used by this rank
  Rank peer = -1;                  // peer or root as a global rank; -1 for none
  std::int32_t position = -1;      // own place among the members
  std::int32_t peer_position = -1;
};

// A call on a communicator as one thread makes it.
struct LinkedCommCall {
  std::int32_t communicator = -1;  // -1: a split or shrink that leaves the rank without one
  std::int32_t position = -1;
  std::int32_t parent = -1;  // split, shrink, grow
  std::int32_t parent_position = -1;
};

struct LinkedProgram {
  const Program* program = nullptr;  // must outlive this
  std::vector<Communicator> communicators;
  // A thread holds entries for the window of endpoint rows between the first and the last that it uses.
  // Lowering puts the rows of one rank side by side, so the windows stay small.
  struct Window {
    std::uint32_t base = 0;   // index of the window's first entry in `endpoints`
    std::uint32_t first = 0;  // endpoint row of that entry
    std::uint32_t count = 0;
  };
  std::vector<Window> windows;  // one a thread
  std::vector<LinkedEndpoint> endpoints;
  // [thread][row of Program::comm_calls]; a thread without such items has an empty list. Empty where the Program has
  // no such rows.
  std::vector<std::vector<LinkedCommCall>> comm_calls;
  bool own_messages = false;  // some rank has a message from itself to itself

  // `endpoint` must be used by some item of the thread.
  const LinkedEndpoint& at(std::size_t thread, unsigned endpoint) const {
    return endpoints[windows[thread].base + (endpoint - windows[thread].first)];
  }
};

// Errors: a rank makes a call on a communicator that does not hold it, or uses an endpoint of a family that has
// no instance with it (and its peer), a peer that is the rank itself outside one group with its own receive, or
// a peer out of the world.
Result<LinkedProgram> link_program(const Program& program);

}  // namespace plumbline
