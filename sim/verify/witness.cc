#include "sim/verify/witness.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/verify/matching.h"
#include "sim/wait_graph.h"

namespace plumbline::verify {
namespace {

class WitnessBuilder {
 public:
  WitnessBuilder(const CheckWorld& world, const Progress& progress, const ColdConnect& cold, Arm arm)
      : world_(world),
        progress_(progress),
        cold_(cold),
        arm_(arm),
        running_(world.threads()),
        connecting_(world.threads(), -1) {}

  Finding build() {
    for (std::uint32_t t = 0; t < world_.threads(); ++t) nodes(t);
    for (std::uint32_t t = 0; t < world_.threads(); ++t) {
      for (const auto& [node, item] : running_[t]) waits_of_entry(t, node, item);
      waits_of_connection(t);
    }
    if (!graph_.deadlocked().empty()) return deadlock_finding(graph_);
    Finding finding;  // no operation is in execution: hosts wait for what their own programs do not contain
    finding.why = "execution stops before the end, and no operation is waiting for another";
    for (int n = 0; n < graph_.size(); ++n) finding.operations.push_back(graph_.operation(n));
    return finding;
  }

 private:
  void nodes(std::uint32_t thread) {
    const Cursor& cursor = progress_.cursors()[thread];
    if (cursor.active) {
      const std::uint32_t end = group_end(*world_.program, cursor.item);
      for (std::uint32_t i = cursor.item; i < end; ++i) {
        if (progress_.incomplete(thread, i))
          running_[thread].emplace_back(graph_.add(world_.operation(thread, i)), i);
      }
    }
    const std::uint32_t item = cold_.blocked(thread).item;
    if (item != kNone32) connecting_[thread] = graph_.add(world_.operation(thread, item));
  }

  // `node` cannot go on before rank `thread` gets past what it is at now. False: that rank is at its end.
  bool wait_for_rank(int node, std::uint32_t thread, std::uint32_t before, const std::string& reason) {
    for (const auto& [other, item] : running_[thread]) graph_.wait(node, other, reason);
    const bool host_behind = connecting_[thread] >= 0 && cold_.blocked(thread).item <= before;
    if (host_behind && connecting_[thread] != node) graph_.wait(node, connecting_[thread], reason);
    return !running_[thread].empty() || host_behind;
  }

  void never(int node, std::uint32_t thread, const std::string& text, const std::string& reason) {
    OperationRef missing;
    missing.rank = static_cast<Rank>(thread);
    missing.text = text;
    const int target = graph_.add(std::move(missing));
    graph_.never(target);
    graph_.wait(node, target, reason);
  }

  void waits_of_entry(std::uint32_t thread, int node, std::uint32_t item) {
    const Port& port = world_.port(thread, item_ref(world_.program->items[item]));
    if (is_p2p(port.kind)) {
      waits_of_message(thread, node, item, port);
    } else {
      waits_of_collective(node, item, port);
    }
  }

  void waits_of_message(std::uint32_t thread, int node, std::uint32_t item, const Port& port) {
    const bool sends = port.kind == EndpointKind::kSend;
    const auto own = items_where(world_, thread, arm_,
                                 [&](const Port& p) { return p.link == port.link && p.kind == port.kind; });
    const auto theirs = items_where(
        world_, port.peer, arm_, [&](const Port& p) { return p.link == port.link && p.kind != port.kind; });
    const auto index = static_cast<std::size_t>(std::find(own.begin(), own.end(), item) - own.begin());
    const char* const wanted = sends ? "receive" : "send";
    if (index >= theirs.size()) {
      never(node, port.peer, fmt::format("no {} for it on rank {}", wanted, port.peer),
            fmt::format("needs its {}", wanted));
      return;
    }
    const std::string match = world_.operation(port.peer, theirs[index]).text;
    if (!wait_for_rank(
            node, port.peer, theirs[index],
            fmt::format("needs its {} {}, which comes later on rank {}", wanted, match, port.peer))) {
      never(node, port.peer, match, fmt::format("needs its {}", wanted));
    }
  }

  void waits_of_collective(int node, std::uint32_t item, const Port& port) {
    const std::uint32_t base = world_.member_base[port.communicator];
    const std::uint32_t index = progress_.member(port.member).done;
    const std::string& name = world_.linked->communicators[port.communicator].name;
    (void)item;
    for (std::uint32_t m = base; m < world_.member_base[port.communicator + 1]; ++m) {
      if (progress_.member(m).active > index) continue;
      const std::uint32_t thread = world_.member_thread[m];
      const std::string reason = fmt::format("needs rank {} in collective {} of {}", thread, index + 1, name);
      if (!wait_for_rank(node, thread, kNone32, reason)) {
        never(node, thread, fmt::format("no collective {} of {} on rank {}", index + 1, name, thread),
              reason);
      }
    }
  }

  void waits_of_connection(std::uint32_t thread) {
    const int node = connecting_[thread];
    if (node < 0) return;
    const ColdConnect::Blocked blocked = cold_.blocked(thread);
    if (blocked.halted) {
      graph_.never(node);
      return;
    }
    if (blocked.need != 0) {
      for (const auto& [other, item] : running_[thread]) graph_.wait(node, other, "its host waits for it");
      return;
    }
    for (const std::uint32_t peer : blocked.peers) {
      const std::string reason = fmt::format("sets up its first connection with the host of rank {}", peer);
      if (connecting_[peer] >= 0) {
        graph_.wait(node, connecting_[peer], reason);
      } else {
        never(node, peer, fmt::format("no operation on rank {} that sets up this connection", peer), reason);
      }
    }
  }

  const CheckWorld& world_;
  const Progress& progress_;
  const ColdConnect& cold_;
  Arm arm_;
  WaitGraph graph_;
  std::vector<std::vector<std::pair<int, std::uint32_t>>>
      running_;                  // by thread: node and item of entries in execution
  std::vector<int> connecting_;  // by thread: node of the connection being set up
};

}  // namespace

Finding witness(const CheckWorld& world, const Progress& progress, const ColdConnect& cold, Arm arm) {
  return WitnessBuilder(world, progress, cold, arm).build();
}

}  // namespace plumbline::verify
