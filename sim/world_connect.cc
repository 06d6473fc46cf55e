// Groups whose hosts are held by connections that are not up (N2, N3).
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/world.h"

namespace plumbline::sim {

// The held group's host has to wait for some connection, which begins here; false: all are up.
bool World::hold(std::uint32_t thread) {
  if (options_.model.connect == Connect::kCold && connect_next(thread)) return true;
  return options_.model.collectives_connect && connect_collectives(thread);
}

// A first collective of the held group meets the other members; false: none has to wait.
bool World::connect_collectives(std::uint32_t thread) {
  const Held& held = threads_[thread].held;
  for (EntryId id = held.first; id < held.first + held.count; ++id) {
    const LinkedEndpoint& linked = linked_->endpoints[entries_[id].route];
    if (is_p2p(endpoint_of(entries_[id]).kind)) continue;
    if (collective_connections_.connected(linked.communicator, linked.position)) continue;
    const std::vector<std::uint32_t> over =
        collective_connections_.arrive(thread, linked.communicator, linked.position);
    if (over.empty()) return true;
    for (const std::uint32_t other : over) {
      if (other != thread) resumed_.push_back(other);
    }
  }
  return false;
}

// Starts the exchange of the held group's first communicator that has a new direction; false: all are
// connected.
bool World::connect_next(std::uint32_t thread) {
  const Held& held = threads_[thread].held;
  for (EntryId begin = held.first; begin < held.first + held.count;) {
    const LinkedEndpoint& own = linked_->endpoints[entries_[begin].route];
    std::vector<Direction> fresh;
    EntryId end = begin;
    for (; end < held.first + held.count; ++end) {
      const std::uint32_t route = entries_[end].route;
      const LinkedEndpoint& linked = linked_->endpoints[route];
      if (linked.communicator != own.communicator) break;
      const EndpointKind kind = endpoint_of(entries_[end]).kind;
      if (!is_p2p(kind) || routes_[route].connected) continue;
      const Direction direction{linked.peer_position, kind == EndpointKind::kSend};
      routes_[route].connected = true;  // known now, or after the exchange that begins here
      if (!connections_.connected(linked.communicator, linked.position, direction))
        fresh.push_back(direction);
    }
    begin = end;
    if (fresh.empty()) continue;
    std::sort(fresh.begin(), fresh.end());
    fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
    connections_.begin(thread, own.communicator, own.position, std::move(fresh));
    return true;
  }
  return false;
}

// Enqueues a group whose connections are up, and its host goes on.
void World::release_held(std::uint32_t thread) {
  const Held held = std::exchange(threads_[thread].held, Held{});
  const NodeId last =
      enqueue_group(thread, held.item, held.first, held.count, held.stream, held.after_compute);
  graph_.depend(held.done, last, Because::kWaitsFor);
  graph_.seal(held.done);
  graph_.seal(held.connect);
}

// Runs the host exchanges as far as they go.
void World::finish_connections() {
  std::vector<std::uint32_t> over = connections_.run();
  while (!over.empty() || !resumed_.empty()) {
    over.insert(over.end(), resumed_.begin(), resumed_.end());
    resumed_.clear();
    for (const std::uint32_t thread : over) {
      if (!hold(thread)) release_held(thread);
    }
    over = connections_.run();
  }
  report_faults();
}

void World::report_faults() {
  for (const ConnectFault& fault : connections_.take_faults()) {
    const Communicator& communicator = linked_->communicators[static_cast<std::size_t>(fault.communicator)];
    const OperationRef own = log_.operation(fault.thread, threads_[fault.thread].connecting);
    const Rank peer = communicator.members[static_cast<std::size_t>(fault.peer)];
    Finding finding;
    finding.kind = FindingKind::kCrossWired;
    finding.operations = {own};
    finding.why = fmt::format(
        "ranks {} and {} set up their first connection of communicator {} with calls that are not each "
        "other's "
        "mirror image{}",
        own.rank, peer, communicator.name,
        fault.truncated ? "; the messages differ in length (\"Message truncated\", internal error)" : "");
    if (fault.truncated) finding.code = "ncclInternalError";
    log_.add(std::move(finding));
  }
}

}  // namespace plumbline::sim
