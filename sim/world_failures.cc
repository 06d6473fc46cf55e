// Processes that end, kernels that fault, and what the others are told of it (N82, N83, N84).
//
// Taken for certain: within a node nobody notices the end of a process but those who meet its host; between nodes
// everybody whose operation needs it does, at once (in truth after InfiniBand's retries, about 30 seconds).
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/world.h"

namespace plumbline::sim {

Status World::failure(std::uint32_t thread, std::uint32_t item_index, Item item) {
  if (!workers_.empty())
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{} on rank {}: a run with tensors has no processes that end or kernels that fault; "
                    "leave the workers out",
                    describe_item(program(), program().threads[thread].rank, item),
                    program().threads[thread].rank));
  if (item_ref(item) == 0) {
    end_process(program().threads[thread].rank);
    return {};
  }
  const NodeId node = graph_.add(NodeKind::kFault, thread, item_index);
  enqueue(node, static_cast<int>(item_aux(item)));
  graph_.seal(node);
  return {};
}

void World::end_process(Rank rank) {
  const auto index = static_cast<std::size_t>(rank);
  if (ended_[index]) return;
  ended_[index] = any_ended_ = true;
  end_groups(rank);
  const auto [first, last] = threads_of(rank);
  for (NodeId node = 1; node < graph_.size(); ++node) {
    const bool meets = graph_[node].kind == NodeKind::kComm || graph_[node].kind == NodeKind::kConnect;
    if (meets && graph_[node].thread >= first && graph_[node].thread < last) cut(node);
  }
  for (std::uint32_t agent = 0; agent < agents_.size(); ++agent) {
    const bool own = agents_[agent].thread >= first && agents_[agent].thread < last;
    if (own && agents_[agent].held.connect != 0) drop_held(agent);
  }
  for (std::uint32_t t = first; t < last; ++t) {
    const LinkedProgram::Window& window = linked_->windows[t];
    for (std::uint32_t i = 0; i < window.count; ++i) {
      const LinkedEndpoint& linked = linked_->endpoints[window.base + i];
      const Route& route = routes_[window.base + i];
      const bool send =
          route.channel >= 0 && program().endpoints[window.first + i].kind == EndpointKind::kSend;
      if (linked.communicator >= 0 && send && options_.model.network(rank, linked.peer))
        channels_.lose(static_cast<std::size_t>(route.channel));
    }
  }
  lifecycle_.end_process(rank);
  for (EntryId entry = 1; entry < entries_.size(); ++entry) {
    if (entries_[entry].active) miss_peers(entry);
  }
  break_off();
}

void World::start_fault(NodeId id) {
  const Rank rank = program().threads[graph_[id].thread].rank;
  faulted_[static_cast<std::size_t>(rank)] = true;
  end_groups(rank);
  complete(id);
}

// Everything of NCCL that the rank has enqueued ends, with garbage.
void World::end_groups(Rank rank) {
  const auto [first, last] = threads_of(rank);
  for (NodeId node = 1; node < graph_.size(); ++node) {
    const Node& kernel = graph_[node];
    if (kernel.kind != NodeKind::kGroup || kernel.done || kernel.aborted) continue;
    if (kernel.thread >= first && kernel.thread < last) abort_kernel(node);
  }
}

// Completes a node that will not come to its end by itself.
void World::cut(NodeId node) {
  if (graph_[node].done) return;
  graph_.cut(node);
  wake_hosts(node);
}

// The host of a held group goes on without it.
void World::drop_held(std::uint32_t agent) {
  const Held held = std::exchange(agents_[agent].held, Held{});
  if (background(agent)) mark_connecting(held, 0);
  connections_.cancel(agent);
  collective_connections_.cancel(agent);
  for (EntryId entry = held.first; entry < held.first + held.count; ++entry) entries_[entry].dropped = true;
  cut(held.done);
  cut(held.connect);
}

// What the device of the rank has become: every call of NCCL fails but the abort (N84).
std::optional<Refusal> World::faulted(std::uint32_t thread) const {
  if (!faulted_[static_cast<std::size_t>(program().threads[thread].rank)]) return std::nullopt;
  return Refusal{"ncclUnhandledCudaError", "N84",
                 "a kernel of this device ended in an illegal address, from which CUDA does not recover"};
}

// An active operation whose peer's process has ended: on the network that is an asynchronous error.
void World::miss_peers(EntryId id) {
  const Entry& entry = entries_[id];
  const Rank own = program().threads[entry.thread].rank;
  if (ended(own) || (entry.end >= 0 && !entry.buffered)) return;
  const LinkedEndpoint& linked = linked_->endpoints[entry.route];
  const auto gone = [&](Rank peer) { return ended(peer) && options_.model.network(own, peer); };
  Rank peer = linked.peer;
  if (!is_p2p(endpoint_of(entry).kind)) {
    const std::vector<Rank>& members =
        linked_->communicators[static_cast<std::size_t>(linked.communicator)].members;
    const auto found = std::find_if(members.begin(), members.end(), gone);
    if (found == members.end()) return;
    peer = *found;
  }
  if (!gone(peer)) return;
  report_error(
      linked.communicator, linked.position, entry.thread, entry.item,
      {"ncclRemoteError", "N83", fmt::format("the process of rank {}, on another node, has ended", peer)});
}

// The communicator's first asynchronous error: the hosts that watch it go on.
void World::report_error(std::int32_t communicator, std::int32_t position, std::uint32_t thread,
                         std::uint32_t item, const Refusal& refusal) {
  if (!lifecycle_.fail(communicator, position, refusal.code)) return;
  refuse(refusal, thread, item, "makes ncclCommGetAsyncError report");
  for (const Watch& watch : watches_) {
    if (watch.communicator == communicator && watch.position == position) cut(watch.node);
  }
}

// Meetings and connections that somebody's end has broken off.
void World::break_off() {
  for (const Lifecycle::Broken& broken : lifecycle_.take_broken()) {
    refuse(broken.refusal, graph_[broken.node].thread, graph_[broken.node].item);
    cut(broken.node);
  }
  if (!any_ended_) return;
  for (std::uint32_t agent = 0; agent < agents_.size(); ++agent) {
    if (agents_[agent].held.connect == 0) continue;
    const std::uint32_t t = agents_[agent].thread;
    std::int32_t communicator = -1;
    Refusal refusal;
    if (const ColdConnections::Waiting waiting = connections_.waiting(agent); waiting.communicator >= 0) {
      const std::vector<Rank>& members =
          linked_->communicators[static_cast<std::size_t>(waiting.communicator)].members;
      for (const std::int32_t peer : waiting.peers) {
        const Rank rank = members[static_cast<std::size_t>(peer)];
        if (!ended(rank)) continue;
        communicator = waiting.communicator;
        refusal = {"ncclSystemError", "N83",
                   fmt::format("it is to connect to rank {}, whose process has ended", rank)};
      }
    } else if (const auto all = collective_connections_.waiting(agent); all.communicator >= 0) {
      if (lifecycle_.ended(all.communicator) < 0) continue;
      communicator = all.communicator;
      refusal = {"ncclRemoteError", "N83", "the process of a rank that it is to connect with has ended"};
    }
    if (communicator < 0) continue;
    const std::vector<Rank>& members = linked_->communicators[static_cast<std::size_t>(communicator)].members;
    const auto own = std::find(members.begin(), members.end(), program().threads[t].rank);
    refuse(refusal, t, agents_[agent].held.item,
           background(agent) ? "makes ncclCommGetAsyncError report" : "returns");
    lifecycle_.fail(communicator, static_cast<std::int32_t>(own - members.begin()), refusal.code);
    drop_held(agent);
  }
}

}  // namespace plumbline::sim
