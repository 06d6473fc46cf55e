#include "sim/wait_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

using Neighbours = std::vector<std::vector<int>>;

// Tarjan's algorithm without recursion. Components are numbered in the order they are completed.
class Components {
 public:
  explicit Components(const Neighbours& next) : next_(next), index_(next.size(), -1), low_(next.size()) {
    of.assign(next.size(), -1);
    for (std::size_t root = 0; root < next.size(); ++root) {
      if (index_[root] < 0) visit(static_cast<int>(root));
    }
  }

  std::vector<int> of;  // component of each node
  int count = 0;

 private:
  struct Frame {
    int node;
    std::size_t position;
  };

  void open(int node) {
    index_[at(node)] = low_[at(node)] = counter_++;
    stack_.push_back(node);
    frames_.push_back({node, 0});
  }

  void visit(int root) {
    open(root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const int node = frame.node;
      if (frame.position < next_[at(node)].size()) {
        const int to = next_[at(node)][frame.position++];
        if (index_[at(to)] < 0) {
          open(to);
        } else if (of[at(to)] < 0) {
          low_[at(node)] = std::min(low_[at(node)], index_[at(to)]);
        }
        continue;
      }
      frames_.pop_back();
      if (!frames_.empty())
        low_[at(frames_.back().node)] = std::min(low_[at(frames_.back().node)], low_[at(node)]);
      if (low_[at(node)] == index_[at(node)]) close(node);
    }
  }

  void close(int root) {
    int node = -1;
    do {
      node = stack_.back();
      stack_.pop_back();
      of[at(node)] = count;
    } while (node != root);
    ++count;
  }

  static std::size_t at(int node) { return static_cast<std::size_t>(node); }

  const Neighbours& next_;
  std::vector<int> index_, low_, stack_;
  std::vector<Frame> frames_;
  int counter_ = 0;
};

// Breadth first from `start` back to it, within its component and in fewer than `limit` steps. Empty: no such
// way. `seen` and `parent` are scratch; `seen` holds the round in which a node was last reached. `budget` is
// charged for every edge looked at.
std::vector<int> round_trip(int start, const Neighbours& next, const std::vector<int>& component,
                            std::size_t limit, std::vector<int>& seen, std::vector<int>& parent,
                            std::int64_t& budget) {
  const auto at = [](int node) { return static_cast<std::size_t>(node); };
  std::vector<int> level{start};
  for (std::size_t depth = 1; depth < limit && !level.empty(); ++depth) {
    std::vector<int> following;
    for (const int node : level) {
      budget -= static_cast<std::int64_t>(next[at(node)].size());
      for (const int to : next[at(node)]) {
        if (to == start) {
          std::vector<int> way;
          for (int step = node; step != start; step = parent[at(step)]) way.push_back(step);
          way.push_back(start);
          std::reverse(way.begin(), way.end());
          return way;
        }
        if (component[at(to)] != component[at(start)] || seen[at(to)] == start) continue;
        seen[at(to)] = start;
        parent[at(to)] = node;
        following.push_back(to);
      }
    }
    level = std::move(following);
  }
  return {};
}

}  // namespace

int WaitGraph::add(OperationRef operation) {
  operations_.push_back(std::move(operation));
  waits_.emplace_back();
  never_.push_back(0);
  reasons_.emplace_back();
  return size() - 1;
}

void WaitGraph::wait(int from, int to, std::string reason) { add_wait(from, {to, std::move(reason), false}); }
void WaitGraph::wait_any(int from, int to, std::string reason) {
  add_wait(from, {to, std::move(reason), true});
}

void WaitGraph::add_wait(int from, Wait wait) {
  PL_ASSERT(from >= 0 && from < size() && wait.to >= 0 && wait.to < size());
  std::vector<Wait>& waits = waits_[static_cast<std::size_t>(from)];
  if (std::any_of(waits.begin(), waits.end(), [&](const Wait& other) { return other.to == wait.to; })) return;
  waits.push_back(std::move(wait));
}

void WaitGraph::never(int node, std::string cause, std::string words) {
  never_[static_cast<std::size_t>(node)] = 1;
  reasons_[static_cast<std::size_t>(node)] = {std::move(cause), std::move(words)};
}

std::vector<bool> WaitGraph::dead() const {
  struct Waiter {
    std::size_t node;
    bool any;
  };
  // What keeps a node: each wait for all, and all its waits for any as one.
  std::vector<std::size_t> open(operations_.size());
  std::vector<bool> needs_any(operations_.size());
  std::vector<std::vector<Waiter>> waiters(operations_.size());
  std::vector<std::size_t> free;
  for (std::size_t node = 0; node < operations_.size(); ++node) {
    open[node] = never_[node];
    for (const Wait& wait : waits_[node]) {
      waiters[static_cast<std::size_t>(wait.to)].push_back({node, wait.any});
      if (!wait.any) ++open[node];
      if (wait.any && !needs_any[node]) ++open[node];
      if (wait.any) needs_any[node] = true;
    }
    if (open[node] == 0) free.push_back(node);
  }
  while (!free.empty()) {
    const std::size_t node = free.back();
    free.pop_back();
    for (const Waiter& waiter : waiters[node]) {
      if (waiter.any && !needs_any[waiter.node]) continue;  // had one before
      if (waiter.any) needs_any[waiter.node] = false;
      if (--open[waiter.node] == 0) free.push_back(waiter.node);
    }
  }
  std::vector<bool> dead(operations_.size());
  for (std::size_t node = 0; node < operations_.size(); ++node) dead[node] = open[node] > 0;
  return dead;
}

std::vector<int> WaitGraph::deadlocked() const {
  const std::vector<bool> is_dead = dead();
  std::vector<int> nodes;
  for (int node = 0; node < size(); ++node) {
    if (is_dead[static_cast<std::size_t>(node)]) nodes.push_back(node);
  }
  return nodes;
}

WaitEdge WaitGraph::edge(int from, const Wait& wait) const {
  return WaitEdge{operation(from), operation(wait.to), wait.reason};
}

std::vector<WaitEdge> WaitGraph::waits() const {
  std::vector<WaitEdge> all;
  for (int from = 0; from < size(); ++from) {
    for (const Wait& wait : waits_[static_cast<std::size_t>(from)]) all.push_back(edge(from, wait));
  }
  return all;
}

std::vector<WaitEdge> WaitGraph::shortest_cycle() const {
  // What can go on is no part of a deadlock, though it may lie on a circle of waits for any.
  const std::vector<bool> is_dead = dead();
  Neighbours next(operations_.size());
  for (std::size_t node = 0; node < next.size(); ++node) {
    for (const Wait& wait : waits_[node]) {
      if (is_dead[node] && is_dead[static_cast<std::size_t>(wait.to)]) next[node].push_back(wait.to);
    }
  }
  const Components components(next);

  // A circle lies within one component. The first with more than one node, or with a node that waits for
  // itself, will do; the bound on the depth keeps the later searches short once a small circle is known.
  constexpr std::int64_t kMostEdgesLookedAt = 50'000'000;
  std::int64_t budget = kMostEdgesLookedAt;
  int chosen = -1;
  std::vector<int> best, seen(next.size(), -1), parent(next.size(), -1);
  for (int node = 0; node < size(); ++node) {
    const int component = components.of[static_cast<std::size_t>(node)];
    if (chosen >= 0 && component != chosen) continue;
    if (chosen >= 0 && budget < 0) break;
    const std::size_t limit = best.empty() ? next.size() + 1 : best.size();
    std::vector<int> way = round_trip(node, next, components.of, limit, seen, parent, budget);
    if (way.empty()) continue;
    best = std::move(way);
    chosen = component;
  }

  std::vector<WaitEdge> cycle;
  for (std::size_t i = 0; i < best.size(); ++i) {
    const int to = best[(i + 1) % best.size()];
    for (const Wait& wait : waits_[static_cast<std::size_t>(best[i])]) {
      if (wait.to == to) cycle.push_back(edge(best[i], wait));
    }
  }
  return cycle;
}

Finding deadlock_finding(const WaitGraph& graph) {
  Finding finding;
  finding.kind = FindingKind::kDeadlock;
  finding.waits = graph.waits();
  finding.cycle = graph.shortest_cycle();
  const std::vector<int> dead = graph.deadlocked();
  PL_ASSERT(!dead.empty());
  std::set<Rank> stuck;
  for (const int node : dead) stuck.insert(graph.operation(node).rank);
  if (!finding.cycle.empty()) {
    std::set<Rank> ranks;
    for (const WaitEdge& wait : finding.cycle) {
      finding.operations.push_back(wait.from);
      ranks.insert(wait.from.rank);
    }
    const WaitEdge& first = finding.cycle.front();
    finding.why = fmt::format(
        "{} operations on {} rank{} wait for each other in a circle: {} on rank {} waits for {} on rank {} "
        "({}), and so on "
        "round. {} rank{} cannot go on.",
        finding.cycle.size(), ranks.size(), ranks.size() == 1 ? "" : "s", first.from.text, first.from.rank,
        first.to.text, first.to.rank, first.reason, stuck.size(), stuck.size() == 1 ? "" : "s");
    const bool meets = std::all_of(finding.cycle.begin(), finding.cycle.end(), [](const WaitEdge& wait) {
      return wait.from.rank == wait.to.rank || wait.reason.find("needs the call of every member") == 0;
    });
    finding.cause = meets ? "creation-order" : "cycle";
    if (meets) finding.why += " The ranks create or end their communicators in different orders.";
    return finding;
  }
  for (const WaitEdge& wait : finding.waits) {
    if (std::none_of(finding.waits.begin(), finding.waits.end(), [&](const WaitEdge& other) {
          return other.from.rank == wait.to.rank && other.from.item == wait.to.item &&
                 other.from.text == wait.to.text;
        })) {
      finding.operations.push_back(wait.from);
      if (finding.why.empty()) {
        finding.why = fmt::format("{} on rank {} waits for something that never comes: {} ({}).",
                                  wait.from.text, wait.from.rank, wait.to.text, wait.reason);
      }
    }
  }
  for (const int node : dead) {
    if (!graph.is_never(node) || graph.why_never(node).cause.empty()) continue;
    finding.cause = graph.why_never(node).cause;
    finding.why += " " + graph.why_never(node).words;
    break;
  }
  if (finding.operations.empty()) {
    finding.operations.push_back(graph.operation(dead.front()));
    finding.why = fmt::format("Rank {} stops at {} and never goes on.", graph.operation(dead.front()).rank,
                              graph.operation(dead.front()).text);
  }
  return finding;
}

}  // namespace plumbline
