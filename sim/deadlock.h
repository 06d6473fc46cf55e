// Why nothing moves any more: builds the wait-for graph of a simulated step that is quiescent with work left,
// beginning at the hosts that wait and at the operations that run without their counterpart, and following
// what each of them waits for.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/interpreter.h"
#include "sim/wait_graph.h"
#include "sim/world.h"

namespace plumbline::sim {

// Where a thread's host stands.
struct HostState {
  Advance last;
  int arm = -1;  // the arm in force, as Interpreter::arm()
};

WaitGraph wait_graph_of(const World& world, const std::vector<HostState>& hosts);

// "is behind it on stream s": why the node waits for another.
std::string wait_words(const World& world, NodeId node, Because because);
// Why a call waits for the members of a communicator that have not come to it.
std::string meeting_words(const Lifecycle::Waiting& waiting, const Communicator& communicator);

}  // namespace plumbline::sim
