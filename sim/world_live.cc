// What a live World (sim/live.h) has beyond one that is bound to a Program: tables that grow, and nodes that the
// caller ends.
#include <algorithm>

#include "sim/world.h"

namespace plumbline::sim {

void World::grow() {
  for (std::size_t c = member_base_.size(); c < linked_->communicators.size(); ++c) {
    member_base_.push_back(static_cast<std::uint32_t>(member_tail_.size()));
    member_tail_.resize(member_tail_.size() + linked_->communicators[c].members.size(), 0);
  }
  bind_queues();
  collectives_.grow();
  lifecycle_.grow();
  connections_.grow(connection_map_);
  collective_connections_.grow(*linked_, collective_map_);
}

void World::add_route(std::uint32_t thread, std::uint32_t row) {
  const std::uint32_t index = linked_->windows[thread].base + row;
  const LinkedEndpoint& linked = linked_->endpoints[index];
  const Endpoint& endpoint = program().endpoints[row];
  Route& route = routes_[index];
  route = Route{};
  route.member = member_base_[static_cast<std::size_t>(linked.communicator)] +
                 static_cast<std::uint32_t>(linked.position);
  if (!is_p2p(endpoint.kind)) return;
  const bool send = endpoint.kind == EndpointKind::kSend;
  const std::vector<Rank>& members =
      linked_->communicators[static_cast<std::size_t>(linked.communicator)].members;
  const std::int32_t from = send ? linked.position : linked.peer_position;
  const std::int32_t to = send ? linked.peer_position : linked.position;
  const Rank sender = members[static_cast<std::size_t>(from)];
  const Rank receiver = members[static_cast<std::size_t>(to)];
  route.duration = options_.time.message(sender, receiver, endpoint.bytes);
  const auto [at, fresh] = live_channels_.try_emplace({linked.communicator, from, to},
                                                      static_cast<std::int32_t>(channel_limits_.size()));
  if (fresh) {
    channel_limits_.push_back(options_.model.limit(members.size(), sender, receiver));
    channels_.add(channel_limits_.back());
  }
  route.channel = at->second;
}

// A node of its own at the stream's end, so that the time at which it is reached is known.
NodeId World::point(std::uint32_t thread, int stream) {
  const NodeId node = graph_.add(NodeKind::kPoint, thread, kNoItem);
  enqueue(node, stream);
  graph_.seal(node);
  return node;
}

void World::end_kernel(NodeId node, Nanoseconds at) { schedule(node, std::max(at, now_)); }

}  // namespace plumbline::sim
