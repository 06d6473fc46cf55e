// Groups that are held by connections that are not up (N2, N3).
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/world.h"

namespace plumbline::sim {

std::uint32_t World::idle_agent(std::uint32_t thread) {
  auto agent = static_cast<std::uint32_t>(threads_.size());
  while (agent < agents_.size() && agents_[agent].held.connect != 0) ++agent;
  if (agent == agents_.size()) agents_.emplace_back();
  agents_[agent].thread = thread;
  return agent;
}

// Nothing: all connections of the group are up, and it may be enqueued. A blocking call holds its host until they are.
// A nonblocking one returns ncclInProgress: the group is enqueued once they are, behind whatever its streams have got
// by then, and its communicators take no other call before (N79). A capture holds the host in any case: it cannot end
// before what it captures is called (N18).
std::optional<Issued> World::begin_connections(const GroupCall& call, EntryId first, std::uint32_t count) {
  const LinkedEndpoint& linked = linked_->endpoints[entries_[first].route];
  const bool captures = threads_[call.thread].graph.open;
  const bool blocks = captures || lifecycle_.blocking(linked.communicator, linked.position);
  const std::uint32_t agent = blocks ? call.thread : idle_agent(call.thread);
  Held& held = agents_[agent].held;
  held = {first, count, call.first_item, call.stream, call.after_compute, 0, 0};
  agents_[agent].item = call.first_item;
  if (!hold(agent)) return std::nullopt;
  held.connect = graph_.add(NodeKind::kConnect, call.thread, call.first_item);
  held.done = graph_.add(NodeKind::kPoint, call.thread, call.first_item);
  if (!blocks) {
    mark_connecting(held, held.connect);
    return Issued{0, held.done};
  }
  return Issued{options_.model.launch_blocking && !captures ? held.done : held.connect, held.done};
}

// The group's communicators are in progress until the node is over; 0: no longer.
void World::mark_connecting(const Held& held, NodeId until) {
  for (EntryId id = held.first; id < held.first + held.count; ++id) {
    const LinkedEndpoint& linked = linked_->endpoints[entries_[id].route];
    lifecycle_.set_connecting(linked.communicator, linked.position, until);
  }
}

// The held group has to wait for some connection, which begins here; false: all are up.
bool World::hold(std::uint32_t agent) {
  if (options_.model.connect == Connect::kCold && connect_next(agent)) return true;
  return options_.model.collectives_connect && connect_collectives(agent);
}

// A first collective of the held group meets the other members; false: none has to wait.
bool World::connect_collectives(std::uint32_t agent) {
  const Held& held = agents_[agent].held;
  for (EntryId id = held.first; id < held.first + held.count; ++id) {
    const LinkedEndpoint& linked = linked_->endpoints[entries_[id].route];
    if (is_p2p(endpoint_of(entries_[id]).kind)) continue;
    if (collective_connections_.connected(linked.communicator, linked.position)) continue;
    const std::vector<std::uint32_t> over =
        collective_connections_.arrive(agent, linked.communicator, linked.position);
    if (over.empty()) return true;
    for (const std::uint32_t other : over) {
      if (other != agent) resumed_.push_back(other);
    }
  }
  return false;
}

// Starts the exchange of the held group's first communicator that has a new direction; false: all are
// connected.
bool World::connect_next(std::uint32_t agent) {
  const Held& held = agents_[agent].held;
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
    connections_.begin(agent, own.communicator, own.position, std::move(fresh));
    return true;
  }
  return false;
}

// Enqueues a group whose connections are up, and its host goes on.
void World::release_held(std::uint32_t agent) {
  const Held held = std::exchange(agents_[agent].held, Held{});
  if (background(agent)) mark_connecting(held, 0);
  const NodeId last = enqueue_group(agents_[agent].thread, held.item, held.first, held.count, held.stream,
                                    held.after_compute);
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
    for (const std::uint32_t agent : over) {
      if (!hold(agent)) release_held(agent);
    }
    over = connections_.run();
  }
  report_faults();
  stop_failed();
}

// Where a nonblocking call's connections end in an internal error, the communicator has it (N82).
void World::stop_failed() {
  for (auto agent = static_cast<std::uint32_t>(threads_.size()); agent < agents_.size(); ++agent) {
    if (agents_[agent].held.connect == 0 || !connections_.waiting(agent).failed) continue;
    const LinkedEndpoint& linked = linked_->endpoints[entries_[agents_[agent].held.first].route];
    lifecycle_.fail(linked.communicator, linked.position, "ncclInternalError");
    drop_held(agent);
  }
}

std::uint32_t World::agent_of(NodeId node) const {
  for (std::uint32_t agent = 0; agent < agents(); ++agent) {
    const Held& held = agents_[agent].held;
    if (held.connect != 0 && (held.connect == node || held.done == node)) return agent;
  }
  return graph_[node].thread;
}

std::uint32_t World::agent_of_entry(EntryId entry) const {
  for (std::uint32_t agent = 0; agent < agents(); ++agent) {
    const Held& held = agents_[agent].held;
    if (held.connect != 0 && entry >= held.first && entry < held.first + held.count) return agent;
  }
  return entries_[entry].thread;
}

void World::report_faults() {
  for (const ConnectFault& fault : connections_.take_faults()) {
    const Communicator& communicator = linked_->communicators[static_cast<std::size_t>(fault.communicator)];
    const OperationRef own = log_.operation(agents_[fault.thread].thread, agents_[fault.thread].item);
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
