#include "sim/connect_all.h"

#include <algorithm>
#include <utility>

namespace plumbline::sim {

void CollectiveConnections::begin_step(const LinkedProgram& linked, CollectiveMap& map) {
  states_.clear();
  grow(linked, map);
}

void CollectiveConnections::grow(const LinkedProgram& linked, CollectiveMap& map) {
  while (states_.size() < linked.communicators.size()) {
    const Communicator& communicator = linked.communicators[states_.size()];
    State& state = states_.emplace_back();
    state.known = &map[communicator.name];
    state.arrived.resize(communicator.members.size());
  }
}

bool CollectiveConnections::connected(std::int32_t communicator, std::int32_t position) const {
  const State& state = states_[static_cast<std::size_t>(communicator)];
  return *state.known || state.arrived.size() < 2 || state.arrived[static_cast<std::size_t>(position)];
}

void CollectiveConnections::forget(std::int32_t communicator) {
  State& state = states_[static_cast<std::size_t>(communicator)];
  *state.known = false;
  std::fill(state.arrived.begin(), state.arrived.end(), false);
  state.threads.clear();
  state.count = 0;
}

std::vector<std::uint32_t> CollectiveConnections::arrive(std::uint32_t thread, std::int32_t communicator,
                                                         std::int32_t position) {
  State& state = states_[static_cast<std::size_t>(communicator)];
  state.arrived[static_cast<std::size_t>(position)] = true;
  state.threads.push_back(thread);
  if (++state.count < state.arrived.size()) return {};
  *state.known = true;
  std::vector<std::uint32_t> threads = std::exchange(state.threads, {});
  std::sort(threads.begin(), threads.end());
  return threads;
}

void CollectiveConnections::cancel(std::uint32_t thread) {
  for (State& state : states_) std::erase(state.threads, thread);
}

CollectiveConnections::Waiting CollectiveConnections::waiting(std::uint32_t thread) const {
  Waiting out;
  for (std::size_t c = 0; c < states_.size(); ++c) {
    const State& state = states_[c];
    if (std::find(state.threads.begin(), state.threads.end(), thread) == state.threads.end()) continue;
    out.communicator = static_cast<std::int32_t>(c);
    for (std::size_t p = 0; p < state.arrived.size(); ++p) {
      if (!state.arrived[p]) out.missing.push_back(static_cast<std::int32_t>(p));
    }
  }
  return out;
}

}  // namespace plumbline::sim
