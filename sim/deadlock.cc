#include "sim/deadlock.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace plumbline::sim {
namespace {

class Explainer {
 public:
  Explainer(const World& world, const std::vector<HostState>& hosts)
      : world_(world), hosts_(hosts), program_(world.program()), graph_(world.graph()) {}

  WaitGraph run() {
    index_issued();
    for (std::uint32_t thread = 0; thread < hosts_.size(); ++thread) {
      if (hosts_[thread].last.state == AdvanceState::kBlocked) host(thread);
    }
    for (auto agent = static_cast<std::uint32_t>(hosts_.size()); agent < world_.agents(); ++agent) {
      if (world_.connecting(agent)) host(agent);
    }
    for (EntryId entry = 1; entry < world_.entries().size(); ++entry) {
      if (world_.entries()[entry].active && world_.entries()[entry].end < 0) this->entry(entry);
    }
    for (NodeId node = 1; node < graph_.size(); ++node) {
      if (graph_[node].kind == NodeKind::kComm && graph_[node].started && !graph_[node].done) device(node);
    }
    while (!work_.empty()) {
      const Thing thing = work_.back();
      work_.pop_back();
      expand(thing);
    }
    return std::move(out_);
  }

 private:
  enum class Kind : std::uint8_t { kHost, kEntry, kDevice, kMissing };
  using MatchKey = std::tuple<bool, std::int32_t, std::int32_t>;
  struct Thing {
    Kind kind;
    std::uint32_t index;
    int node;
  };

  FindingLog& log() const { return const_cast<World&>(world_).log(); }

  int thing(Kind kind, std::uint32_t index, std::uint32_t other,
            OperationRef (Explainer::*describe)(std::uint32_t) const) {
    const auto [at, fresh] = known_.try_emplace({kind, index, other}, out_.size());
    if (fresh) {
      out_.add((this->*describe)(index));
      work_.push_back({kind, index, at->second});
    }
    return at->second;
  }
  int host(std::uint32_t thread) { return thing(Kind::kHost, thread, 0, &Explainer::host_text); }
  int entry(EntryId entry) { return thing(Kind::kEntry, entry, 0, &Explainer::entry_text); }
  int device(NodeId node) { return thing(Kind::kDevice, node, 0, &Explainer::device_text); }

  // An operation that `thread` never issues, and why the deadlock is more than that.
  struct Why {
    std::string cause;
    std::string words;
  };
  int missing(std::uint32_t thread, std::uint32_t wanted_by, const char* what, Why why = {}) {
    const auto [at, fresh] = known_.try_emplace({Kind::kMissing, thread, wanted_by}, out_.size());
    if (fresh) {
      const Rank rank = program_.threads[thread].rank;
      const int node = out_.add({rank, -1, -1, fmt::format("{} that rank {} never posts", what, rank)});
      out_.never(node, std::move(why.cause), std::move(why.words));
    }
    return at->second;
  }

  bool finished(Rank rank) const {
    const auto [first, last] = world_.threads_of(rank);
    return std::all_of(hosts_.begin() + first, hosts_.begin() + last,
                       [](const HostState& host) { return host.last.state == AdvanceState::kFinished; });
  }

  // The process of the rank has ended, and what that means for those who wait for it.
  Why ended(Rank rank, Rank other) const {
    const char* noticed =
        world_.model().network(rank, other)
            ? "ncclCommGetAsyncError reports it, but the operation itself goes on until ncclCommAbort."
            : "Within a node nobody is told, and an operation that needs it goes on for ever.";
    return {"process-ended", fmt::format("The process of rank {} has ended. {}", rank, noticed)};
  }

  // How many operations of `key` the rank's program has in all, in the arms that are or may be taken.
  std::uint32_t count_of(const MatchKey& key, Rank rank) const {
    const auto [first, last] = world_.threads_of(rank);
    std::uint32_t count = 0;
    for (std::uint32_t t = first; t < last; ++t) {
      const Thread& range = program_.threads[t];
      for (std::uint32_t item = range.begin; item < range.end; ++item) {
        const Item code = program_.items[item];
        const unsigned arm = item_flags(code) & (kArmYes | kArmNo);
        const bool skipped = (arm == kArmYes && hosts_[t].arm == 0) || (arm == kArmNo && hosts_[t].arm == 1);
        if (item_op(code) == ItemOp::kOp && !skipped && is_of(key, t, item)) ++count;
      }
    }
    return count;
  }

  // Why a counterpart of `entry` on `rank` never comes: by the numbers of both.
  Why why_missing(const Entry& entry, const MatchKey& theirs, Rank rank) const {
    const Rank own = program_.threads[entry.thread].rank;
    if (world_.ended(rank)) return ended(rank, own);
    const std::uint32_t ours = count_of(match_key(entry), own);
    const std::uint32_t there = count_of(theirs, rank);
    const LinkedEndpoint& linked = world_.linked().endpoints[entry.route];
    const std::string& communicator =
        world_.linked().communicators[static_cast<std::size_t>(linked.communicator)].name;
    const EndpointKind kind = world_.endpoint_of(entry).kind;
    const std::string end =
        finished(rank) ? fmt::format(" Rank {} is at the end of its step.", rank) : std::string();
    const bool p2p = is_p2p(kind);
    const bool send = kind == EndpointKind::kSend;
    if (there == 0 && !p2p) {
      return {"missing-participant",
              fmt::format(
                  "Rank {} takes no part: it makes no collective call in communicator {}, of which rank {} "
                  "makes {}.{}",
                  rank, communicator, own, ours, end)};
    }
    if (there == 0) {
      return {finished(rank) ? "peer-finished" : "missing-participant",
              fmt::format("Rank {} {} nothing {} rank {} in communicator {}, rank {} {} {}.{}", rank,
                          send ? "receives" : "sends", send ? "from" : "to", own, communicator, own,
                          send ? "sends" : "receives", ours, end)};
    }
    if (p2p) {
      return {"count-mismatch",
              fmt::format("In communicator {}, rank {} {} {} messages {} rank {}, which {} {}.{}",
                          communicator, own, send ? "sends" : "receives", ours, send ? "to" : "from", rank,
                          send ? "receives" : "sends", there, end)};
    }
    return {"count-mismatch",
            fmt::format("In communicator {}, rank {} makes {} collective calls, rank {} makes {}.{}",
                        communicator, own, ours, rank, there, end)};
  }

  // Waits for every host thread of the rank that is not at its end; false: all are.
  bool wait_for_hosts(int from, Rank rank, const std::string& reason) {
    bool any = false;
    const auto [first, last] = world_.threads_of(rank);
    for (std::uint32_t t = first; t < last; ++t) {
      if (hosts_[t].last.state != AdvanceState::kBlocked) continue;
      out_.wait(from, host(t), reason);
      any = true;
    }
    for (auto agent = static_cast<std::uint32_t>(hosts_.size()); agent < world_.agents(); ++agent) {
      if (!world_.connecting(agent) || world_.thread_of(agent) < first || world_.thread_of(agent) >= last)
        continue;
      out_.wait(from, host(agent), reason);
      any = true;
    }
    return any;
  }

  OperationRef host_text(std::uint32_t thread) const {
    if (thread >= hosts_.size()) {
      OperationRef at = log().operation(world_.thread_of(thread), world_.item_of(thread));
      at.text = "the connections of " + at.text;
      return at;
    }
    OperationRef at = log().operation(thread, hosts_[thread].last.item_index);
    at.text = "the host at " + at.text;
    return at;
  }
  OperationRef entry_text(std::uint32_t entry) const {
    return log().operation(world_.entries()[entry].thread, world_.entries()[entry].item);
  }
  OperationRef device_text(std::uint32_t node) const {
    return log().operation(graph_[node].thread, graph_[node].item);
  }

  // Operations that are issued but not active yet, by what they are matched on, in order of issue.
  void index_issued() {
    for (EntryId id = 1; id < world_.entries().size(); ++id) {
      const Entry& entry = world_.entries()[id];
      const bool aborted = entry.dropped || world_.ended(program_.threads[entry.thread].rank) ||
                           (entry.node != 0 && graph_[entry.node].aborted);
      if (!entry.active && !aborted) issued_[match_key(entry)].push_back(id);
    }
  }

  MatchKey match_key(const Entry& entry) const {
    const EndpointKind kind = world_.endpoint_of(entry).kind;
    const LinkedEndpoint& linked = world_.linked().endpoints[entry.route];
    if (is_p2p(kind)) return {true, world_.channel_of(entry.route), kind == EndpointKind::kSend ? 1 : 0};
    return {false, linked.communicator, linked.position};
  }

  void expand(const Thing& thing) {
    switch (thing.kind) {
      case Kind::kHost:
        return expand_host(thing);
      case Kind::kEntry:
        return expand_entry(thing);
      case Kind::kDevice:
        if (graph_[thing.index].kind == NodeKind::kComm && graph_[thing.index].started)
          return expand_meeting(thing);
        return expand_predecessors(thing.node, thing.index);
      case Kind::kMissing:
        return;
    }
  }

  void expand_host(const Thing& thing) {
    const ColdConnections::Waiting waiting = world_.connections().waiting(thing.index);
    if (waiting.communicator < 0) {
      if (const auto all = world_.collective_connections().waiting(thing.index); all.communicator >= 0)
        return expand_first_collective(thing, all);
      if (thing.index >= hosts_.size() || hosts_[thing.index].last.state != AdvanceState::kBlocked) return;
      wait_for_node(thing.node, world_.seen(static_cast<NodeId>(hosts_[thing.index].last.waiting_for)),
                    "the host waits for it");
      return;
    }
    if (waiting.failed) return out_.never(thing.node);
    const Communicator& communicator =
        world_.linked().communicators[static_cast<std::size_t>(waiting.communicator)];
    for (const std::int32_t position : waiting.peers) {
      const Rank peer = communicator.members[static_cast<std::size_t>(position)];
      const std::string reason = "both hosts must first connect in communicator " + communicator.name;
      if (wait_for_hosts(thing.node, peer, reason)) continue;
      out_.wait(thing.node,
                missing(world_.threads_of(peer).first, thing.index, "a first call to connect with"), reason);
    }
  }

  void expand_first_collective(const Thing& thing, const CollectiveConnections::Waiting& waiting) {
    const Communicator& communicator =
        world_.linked().communicators[static_cast<std::size_t>(waiting.communicator)];
    const std::string reason =
        "all hosts must first connect for collectives of communicator " + communicator.name;
    for (const std::int32_t position : waiting.missing) {
      const Rank peer = communicator.members[static_cast<std::size_t>(position)];
      if (wait_for_hosts(thing.node, peer, reason)) continue;
      out_.wait(thing.node, missing(world_.threads_of(peer).first, thing.index, "a first collective"),
                reason);
    }
  }

  // A call on a communicator whose host is there, and others' are not.
  void expand_meeting(const Thing& thing) {
    const Lifecycle::Waiting waiting = world_.lifecycle().waiting(thing.index);
    const Communicator& communicator =
        world_.linked().communicators[static_cast<std::size_t>(waiting.communicator)];
    const std::string reason = meeting_words(waiting, communicator);
    for (const std::int32_t position : waiting.missing) {
      const Rank rank = communicator.members[static_cast<std::size_t>(position)];
      if (const NodeId theirs = world_.lifecycle().counterpart(thing.index, position);
          theirs != 0 && !world_.ended(rank)) {
        out_.wait(thing.node, device(theirs), reason);
        continue;
      }
      bool to_come = false;
      const auto [first, last] = world_.threads_of(rank);
      for (std::uint32_t t = first; t < last; ++t) {
        if (!calls_to_come(t, thing.index)) continue;
        out_.wait(thing.node, host(t), reason + ", and the host has not got to it");
        to_come = true;
      }
      if (to_come) continue;
      Why why{"missing-participant", fmt::format("Rank {} takes no part in it.{}", rank,
                                                 finished(rank) ? " It is at the end of its step." : "")};
      if (world_.ended(rank))
        why = {"process-ended",
               fmt::format("The process of rank {} has ended before it came to the call.", rank)};
      out_.wait(thing.node, missing(first, thing.index, "a call on the communicator", std::move(why)),
                reason);
    }
  }

  bool calls_to_come(std::uint32_t thread, NodeId node) const {
    bool any = false;
    for_each_to_come(thread, [&](Item code, std::uint32_t) {
      if (item_op(code) != ItemOp::kComm) return;
      const unsigned row = item_ref(code);
      any = any || world_.lifecycle().same_meeting(node, program_.comm_calls[row],
                                                   world_.linked().comm_calls[thread][row]);
    });
    return any;
  }

  void expand_entry(const Thing& thing) {
    const Entry& entry = world_.entries()[thing.index];
    if (!entry.active) {
      if (entry.node == 0) {
        out_.wait(thing.node, host(world_.agent_of_entry(thing.index)), "its host is still connecting");
      } else if (graph_[entry.node].parked) {
        wait_for_processors(thing.node, entry.node);
      } else {
        expand_predecessors(thing.node, entry.node);
      }
      return;
    }
    const LinkedEndpoint& linked = world_.linked().endpoints[entry.route];
    const EndpointKind kind = world_.endpoint_of(entry).kind;
    if (entry.broken) {
      out_.wait(thing.node, missing(entry.thread, thing.index, "a call equal to the other members'"),
                "the members of its communicator call different collectives");
      return;
    }
    if (is_p2p(kind) &&
        world_.channels().out_of_step(static_cast<std::size_t>(world_.channel_of(entry.route)))) {
      out_.wait(
          thing.node,
          missing(world_.threads_of(linked.peer).first, thing.index, "the rest of a message of its size"),
          "its channel is out of step, since ends of different size have met");
      return;
    }
    if (is_p2p(kind)) {
      const bool send = kind == EndpointKind::kSend;
      wait_for_counterpart(thing, {true, world_.channel_of(entry.route), send ? 0 : 1}, linked.peer,
                           ahead(thing.index, send), send ? "needs its receive" : "needs its send",
                           send ? "a receive" : "a send");
      return;
    }
    const Communicator& communicator =
        world_.linked().communicators[static_cast<std::size_t>(linked.communicator)];
    const std::uint32_t own = world_.collectives().activated(linked.communicator, linked.position);
    for (std::size_t position = 0; position < communicator.members.size(); ++position) {
      const auto theirs =
          world_.collectives().activated(linked.communicator, static_cast<std::int32_t>(position));
      if (theirs >= own) {
        if (!world_.collectives().dropped(linked.communicator, static_cast<std::int32_t>(position))) continue;
        const Rank rank = communicator.members[position];
        Why why;
        if (world_.ended(rank)) why = ended(rank, program_.threads[entry.thread].rank);
        out_.wait(thing.node,
                  missing(world_.threads_of(rank).first, thing.index, "a collective, aborted by then,",
                          std::move(why)),
                  "needs the same call on every member of communicator " + communicator.name);
        continue;
      }
      wait_for_counterpart(thing, {false, linked.communicator, static_cast<std::int32_t>(position)},
                           communicator.members[position], own - theirs - 1,
                           "needs the same call on every member of communicator " + communicator.name,
                           "a collective");
    }
  }

  // Any of the groups that run on the device may give its processors back.
  void wait_for_processors(int from, NodeId parked) {
    const Rank rank = program_.threads[graph_[parked].thread].rank;
    for (NodeId node = 1; node < graph_.size(); ++node) {
      const Node& running = graph_[node];
      if (running.kind != NodeKind::kGroup || !running.started || running.done) continue;
      if (program_.threads[running.thread].rank != rank) continue;
      for (EntryId id = running.first; id < running.first + running.count; ++id) {
        if (world_.entries()[id].end < 0)
          out_.wait_any(from, entry(id), "its kernel needs processors that this one holds");
      }
    }
  }

  // How many active operations of the channel are unmatched before this one.
  std::uint32_t ahead(EntryId id, bool send) const {
    const Entry& entry = world_.entries()[id];
    const auto channel = static_cast<std::size_t>(world_.channel_of(entry.route));
    std::uint32_t after = 0;
    for (EntryId next = entry.next; next != 0; next = world_.entries()[next].next) ++after;
    return world_.channels().activated(channel, send) - world_.channels().activated(channel, !send) - 1 -
           after;
  }

  // The `number`-th operation of `key` at `rank` that is not active: issued, still to be issued, or not
  // existing.
  void wait_for_counterpart(const Thing& thing, const MatchKey& key, Rank rank, std::uint32_t number,
                            const std::string& reason, const char* what) {
    const auto found = issued_.find(key);
    const std::size_t issued = found == issued_.end() ? 0 : found->second.size();
    if (number < issued) return out_.wait(thing.node, entry(found->second[number]), reason);
    const auto [first, last] = world_.threads_of(rank);
    std::uint32_t all = 0;
    std::vector<std::uint32_t> hosts;
    for (std::uint32_t t = first; t < last; ++t) {
      const std::uint32_t count = to_come(t, key);
      all += count;
      if (count > 0) hosts.push_back(t);
    }
    if (all > number - issued) {
      for (const std::uint32_t t : hosts)
        out_.wait(thing.node, host(t), reason + ", and the host has not got to it");
    } else {
      out_.wait(thing.node,
                missing(first, thing.index, what, why_missing(world_.entries()[thing.index], key, rank)),
                reason);
    }
  }

  // Operations of `key` among the items that the thread's host has not got to. Items of an arm not decided
  // yet count.
  std::uint32_t to_come(std::uint32_t thread, const MatchKey& key) const {
    std::uint32_t count = 0;
    for_each_to_come(thread, [&](Item code, std::uint32_t item) {
      if (item_op(code) == ItemOp::kOp && is_of(key, thread, item)) ++count;
    });
    return count;
  }

  bool is_of(const MatchKey& key, std::uint32_t thread, std::uint32_t item) const {
    const Item code = program_.items[item];
    const LinkedProgram::Window& window = world_.linked().windows[thread];
    Entry entry;
    entry.thread = thread;
    entry.item = item;
    entry.route = window.base + (item_ref(code) - window.first);
    const Endpoint& endpoint = program_.endpoints[item_ref(code)];
    return (is_p2p(endpoint.kind) || endpoint.bytes != 0) && match_key(entry) == key;
  }

  // Calls visit(item, its index) for what the thread's host has not got to.
  template <typename Visit>
  void for_each_to_come(std::uint32_t thread, Visit visit) const {
    const Thread& range = program_.threads[thread];
    std::uint32_t item = hosts_[thread].last.item_index;
    if (hosts_[thread].last.state == AdvanceState::kFinished || item >= range.end) return;
    while ((item_flags(program_.items[item]) & kMore) != 0) ++item;
    int arm = hosts_[thread].arm;
    for (++item; item < range.end; ++item) {
      const Item code = program_.items[item];
      const unsigned flags = item_flags(code);
      if (item_op(code) == ItemOp::kDecide) arm = -1;
      const bool skipped = ((flags & kArmYes) != 0 && arm == 0) || ((flags & kArmNo) != 0 && arm == 1);
      if (!skipped) visit(code, item);
    }
  }

  void expand_predecessors(int from, NodeId node) {
    graph_.for_each_missing(node, [&](NodeId before, Because because) {
      wait_for_node(from, before, wait_words(world_, node, because));
    });
  }

  // Waiting for a node is waiting for all of it that is not over. Points are passed through: they stand for
  // what they collect.
  void wait_for_node(int from, NodeId on, const std::string& reason) {
    std::set<NodeId> passed;
    wait_for_node(from, on, reason, passed);
  }

  void wait_for_node(int from, NodeId on, const std::string& reason, std::set<NodeId>& passed) {
    const Node& node = graph_[on];
    if (node.done || !passed.insert(on).second) return;
    switch (node.kind) {
      case NodeKind::kConnect:
        return out_.wait(from, host(world_.agent_of(on)), reason);
      case NodeKind::kStarted:
        return wait_for_node(from, node.first, reason, passed);
      case NodeKind::kPoint: {
        bool any = false;
        graph_.for_each_missing(on, [&](NodeId before, Because) {
          any = true;
          wait_for_node(from, before, reason, passed);
        });
        if (!any)
          out_.wait(from, host(world_.agent_of(on)), reason);  // of a group whose host is still connecting
        return;
      }
      case NodeKind::kGroup:
        for (EntryId id = node.first; id < node.first + node.count; ++id) {
          if (!node.started) return out_.wait(from, entry(id), reason);  // its first operation speaks for it
          if (world_.entries()[id].end < 0) out_.wait(from, entry(id), reason);
        }
        return;
      case NodeKind::kKernel:
      case NodeKind::kRead:
      case NodeKind::kComm:
      case NodeKind::kFault:
        return out_.wait(from, device(on), reason);
    }
  }

  const World& world_;
  const std::vector<HostState>& hosts_;
  const Program& program_;
  const DeviceGraph& graph_;
  WaitGraph out_;
  std::map<std::tuple<Kind, std::uint32_t, std::uint32_t>, int> known_;
  std::map<MatchKey, std::vector<EntryId>> issued_;
  std::vector<Thing> work_;
};

}  // namespace

WaitGraph wait_graph_of(const World& world, const std::vector<HostState>& hosts) {
  return Explainer(world, hosts).run();
}

}  // namespace plumbline::sim
