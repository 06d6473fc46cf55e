// Calls on communicators: what their hosts wait for, and what they do to what is enqueued.
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/world.h"

namespace plumbline::sim {

// Communicators made by a split that shares (N7) take their turns in their parent's queue.
void World::bind_queues() {
  queue_of_.resize(member_tail_.size());
  for (std::uint32_t member = 0; member < queue_of_.size(); ++member) queue_of_[member] = member;
  const auto member_of = [&](std::int32_t communicator, std::int32_t position) {
    return member_base_[static_cast<std::size_t>(communicator)] + static_cast<std::uint32_t>(position);
  };
  // A parent may itself share with its parent, and rows are in any order.
  for (std::size_t round = 0; round <= program().comm_calls.size(); ++round) {
    bool changed = false;
    for (const auto& rows : linked_->comm_calls) {
      for (std::size_t row = 0; row < rows.size(); ++row) {
        if (!program().comm_calls[row].share || rows[row].communicator < 0) continue;
        std::uint32_t& queue = queue_of_[member_of(rows[row].communicator, rows[row].position)];
        const std::uint32_t parent = queue_of_[member_of(rows[row].parent, rows[row].parent_position)];
        changed = changed || queue != parent;
        queue = parent;
      }
    }
    if (!changed) return;
  }
}

void World::refuse(const Refusal& refusal, std::uint32_t thread, std::uint32_t item, const char* how) {
  if (!log_.wants(FindingKind::kNcclError)) return;
  const OperationRef at = log_.operation(thread, item);
  Finding finding;
  finding.kind = FindingKind::kNcclError;
  finding.operations = {at};
  finding.code = refusal.code;
  finding.rule = refusal.rule;
  finding.why = fmt::format("{} on rank {} {} {}: {}", at.text, at.rank, how, refusal.code, refusal.why);
  log_.add(std::move(finding));
}

// Sends to oneself need as many receives from oneself, on the same communicator and in the same group (N25).
bool World::refused_self(const GroupCall& call) {
  std::map<std::int32_t, int> sends;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const Endpoint& endpoint = program().endpoints[item_ref(call.entries[i])];
    const LinkedEndpoint& linked = linked_->endpoints[route_of(call.thread, call.entries[i])];
    if (!is_p2p(endpoint.kind) || linked.peer_position != linked.position) continue;
    if (sends.empty()) first = call.first_item + static_cast<std::uint32_t>(i);
    sends[linked.communicator] += endpoint.kind == EndpointKind::kSend ? 1 : -1;
  }
  for (const auto& [communicator, surplus] : sends) {
    if (surplus == 0) continue;
    refuse({"ncclInvalidUsage", "N25",
            surplus > 0 ? "a send to oneself without its receive in the same group"
                        : "a receive from oneself without its send in the same group"},
           call.thread, first);
    return true;
  }
  return false;
}

// Streams of a group are all captured by one graph, or none is (N18). Where those of one communicator differ, the
// second call is refused; where communicators differ, the launch is, and all of them are of no more use.
bool World::mixes_capture(const GroupCall& call) {
  std::map<std::int32_t, bool> captured;  // by communicator
  bool differ = false;
  std::uint32_t at = call.first_item;
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const std::int32_t communicator = linked_->endpoints[route_of(call.thread, call.entries[i])].communicator;
    const bool inside = (item_flags(call.entries[i]) & kUncaptured) == 0;
    const auto [own, fresh] = captured.try_emplace(communicator, inside);
    const auto index = call.first_item + static_cast<std::uint32_t>(i);
    if (own->second != inside) {
      refuse({"ncclInvalidUsage", "N18",
              "streams of one communicator in a group are all captured by the same graph, or none is"},
             call.thread, index);
      return true;
    }
    if (inside != captured.begin()->second && !std::exchange(differ, true)) at = index;
  }
  if (!differ) return false;
  refuse(
      {"ncclInvalidUsage", "N18", "either all communicators of a group are captured by a graph, or none is"},
      call.thread, at);
  for (const Item item : call.entries) {
    const LinkedEndpoint& linked = linked_->endpoints[route_of(call.thread, item)];
    lifecycle_.fail(linked.communicator, linked.position, "ncclInvalidUsage");
  }
  return true;
}

// An operation of the group is refused: then none of them is launched (N10).
bool World::refused(const GroupCall& call) {
  if (const std::optional<Refusal> refusal = faulted(call.thread); refusal) {
    refuse(*refusal, call.thread, call.first_item);
    return true;
  }
  const ProgramExtras& extras = program().extras;
  if (program().comm_calls.empty() && !extras.failures && !extras.graphs) return false;
  if (mixes_capture(call)) return true;
  std::optional<bool> blocking;
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const LinkedEndpoint& linked = linked_->endpoints[route_of(call.thread, call.entries[i])];
    std::optional<Refusal> refusal = lifecycle_.use(linked.communicator, linked.position);
    const bool blocks = lifecycle_.blocking(linked.communicator, linked.position);
    if (!refusal && blocking.value_or(blocks) != blocks)
      refusal = Refusal{"ncclInvalidArgument", "N80", "the group has blocking and nonblocking communicators"};
    blocking = blocks;
    if (!refusal) continue;
    refuse(*refusal, call.thread, call.first_item + static_cast<std::uint32_t>(i));
    return true;
  }
  return false;
}

void World::depend_on_queue(NodeId node, std::int32_t communicator, std::int32_t position) {
  const std::uint32_t member =
      member_base_[static_cast<std::size_t>(communicator)] + static_cast<std::uint32_t>(position);
  graph_.depend(node, member_tail_[queue_of_[member]], Because::kCommunicator);
}

Result<Issued> World::comm(std::uint32_t thread, std::uint32_t item_index, Item item) {
  const CommCall& call = program().comm_calls[item_ref(item)];
  const LinkedCommCall& linked = linked_->comm_calls[thread][item_ref(item)];
  std::optional<Refusal> refusal = lifecycle_.check(call, linked);
  if (call.kind != CommCallKind::kAbort && faulted(thread)) refusal = faulted(thread);
  if (refusal) {
    refuse(*refusal, thread, item_index);
    return Issued{};
  }
  const NodeId node = graph_.add(NodeKind::kComm, thread, item_index);
  switch (call.kind) {
    case CommCallKind::kInit:
    case CommCallKind::kTurn:
      break;
    case CommCallKind::kGrow:
      if (linked.parent >= 0) depend_on_queue(node, linked.parent, linked.parent_position);
      break;
    case CommCallKind::kSplit:
      depend_on_queue(node, linked.parent, linked.parent_position);
      break;
    case CommCallKind::kShrink:
      if (call.abort_parent) abort_member(linked.parent, linked.parent_position);
      depend_on_queue(node, linked.parent, linked.parent_position);
      break;
    case CommCallKind::kFinalize:
    case CommCallKind::kDestroy:
      depend_on_queue(node, linked.communicator, linked.position);
      break;
    case CommCallKind::kSync:
      depend_on_queue(node, linked.communicator, linked.position);
      watches_.push_back({node, linked.communicator, linked.position});
      break;
    case CommCallKind::kAbort:
    case CommCallKind::kRevoke:
      abort_member(linked.communicator, linked.position);
      break;
    case CommCallKind::kReady:
      graph_.depend(node, lifecycle_.pending(linked.communicator, linked.position), Because::kWaitsFor);
      break;
  }
  lifecycle_.issue(node, call, linked);
  if (creates(call.kind) && linked.communicator >= 0) forget_connections(thread, linked);
  graph_.seal(node);
  const bool polls = call.kind == CommCallKind::kReady || call.kind == CommCallKind::kSync;
  const bool returns = call.nonblocking && !polls;
  return Issued{returns ? 0 : Token{node}, node};
}

// A new communicator is cold, whatever it was called before.
void World::forget_connections(std::uint32_t thread, const LinkedCommCall& linked) {
  connections_.forget(linked.communicator, linked.position);
  collective_connections_.forget(linked.communicator);
  const auto [first, last] = threads_of(program().threads[thread].rank);
  for (std::uint32_t t = first; t < last; ++t) {
    const LinkedProgram::Window& window = linked_->windows[t];
    for (std::uint32_t i = window.base; i < window.base + window.count; ++i) {
      if (linked_->endpoints[i].communicator == linked.communicator) routes_[i].connected = false;
    }
  }
}

void World::start_comm(NodeId node) {
  for (const NodeId over : lifecycle_.arrive(node)) complete(over);
  break_off();
}

// What the member has enqueued and is not over ends now, with garbage (N77).
void World::abort_member(std::int32_t communicator, std::int32_t position) {
  const std::uint32_t member =
      member_base_[static_cast<std::size_t>(communicator)] + static_cast<std::uint32_t>(position);
  for (NodeId node = 1; node < graph_.size(); ++node) {
    const Node& kernel = graph_[node];
    if (kernel.kind != NodeKind::kGroup || kernel.done || kernel.aborted) continue;
    if (routes_[entries_[kernel.first].route].member == member) abort_kernel(node);
  }
  // What a nonblocking call has not enqueued yet is not.
  for (auto agent = static_cast<std::uint32_t>(threads_.size()); agent < agents_.size(); ++agent) {
    const Held& held = agents_[agent].held;
    bool own = false;
    for (EntryId id = held.first; held.connect != 0 && id < held.first + held.count; ++id)
      own = own || routes_[entries_[id].route].member == member;
    if (own) drop_held(agent);
  }
}

void World::abort_kernel(NodeId id) {
  Node& kernel = graph_[id];
  if (kernel.started && kernel.open == 0) return;  // all is decided: it ends by itself
  kernel.aborted = true;
  if (!kernel.started) return;
  for (EntryId id_of = kernel.first; id_of < kernel.first + kernel.count; ++id_of) {
    const Entry& entry = entries_[id_of];
    if (entry.end >= 0) continue;
    const EndpointKind kind = endpoint_of(entry).kind;
    if (is_p2p(kind)) {
      channels_.drop(static_cast<std::size_t>(routes_[entry.route].channel), id_of,
                     kind == EndpointKind::kSend);
    } else {
      const LinkedEndpoint& linked = linked_->endpoints[entry.route];
      collectives_.drop(linked.communicator, linked.position, id_of);
    }
    entries_[id_of].end = now_;
  }
  schedule(id, now_);
}

}  // namespace plumbline::sim
