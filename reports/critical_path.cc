#include "reports/critical_path.h"

#include <algorithm>

namespace plumbline {
namespace {

// Slack is a longest-path problem over two nodes an event, its start (2k) and its end (2k + 1), k the
// position in the step.
class SlackGraph {
 public:
  // `position` has room for every event of the record; links never leave a step, so only this step's entries
  // are read.
  SlackGraph(const RunRecord& record, const StepEvents& step, const EventLinks& links,
             std::vector<std::uint32_t>& position)
      : record_(record), step_(step), position_(position) {
    for (std::size_t k = 0; k < step.index.size(); ++k)
      position_[step.index[k]] = static_cast<std::uint32_t>(k);
    for (const std::uint32_t i : step.index) add_event(links, i);
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  }

  void solve(std::vector<Nanoseconds>& slack) {
    const std::size_t nodes = 2 * step_.index.size();
    std::vector<std::uint32_t> successors(nodes, 0), first(nodes + 1, 0);
    for (const Edge& edge : edges_) {
      ++successors[edge.from];
      ++first[edge.to + 1];
    }
    for (std::size_t n = 0; n < nodes; ++n) first[n + 1] += first[n];
    std::vector<Nanoseconds> latest(nodes, step_.end);
    std::vector<std::uint32_t> ready;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      if (successors[n] == 0) ready.push_back(n);
    }
    // Backwards from the nodes without successors; `edges_` is sorted by target, so `first` indexes a node's
    // inputs.
    for (std::size_t at = 0; at < ready.size(); ++at) {
      const std::uint32_t node = ready[at];
      for (std::uint32_t k = first[node]; k < first[node + 1]; ++k) {
        const Edge& edge = edges_[k];
        latest[edge.from] = std::min(latest[edge.from], latest[node] - edge.weight);
        if (--successors[edge.from] == 0) ready.push_back(edge.from);
      }
      if (node % 2 == 1) {
        const std::uint32_t i = step_.index[node / 2];
        slack[i] = std::max<Nanoseconds>(0, latest[node] - record_.events[i].end);
      }
    }
  }

 private:
  struct Edge {
    std::uint32_t to;
    std::uint32_t from;
    Nanoseconds weight;
    auto operator<=>(const Edge&) const = default;
  };

  std::uint32_t start_node(std::uint32_t i) const { return 2 * position_[i]; }
  std::uint32_t end_node(std::uint32_t i) const { return start_node(i) + 1; }

  void add_event(const EventLinks& links, std::uint32_t i) {
    const RunEvent& e = record_.events[i];
    edges_.push_back({end_node(i), start_node(i), e.end - e.ready});
    for (const std::int32_t before : {links.data[0][i], links.data[1][i], links.stream[i]}) after(i, before);
    if (links.cause_kind[i] == CauseKind::kRank) after(i, links.cause[i]);
    const std::int32_t other = links.cause_kind[i] == CauseKind::kPeer ? links.cause[i] : links.match[i];
    if (other != kNoEvent)
      edges_.push_back({end_node(i), start_node(static_cast<std::uint32_t>(other)), e.end - e.ready});
  }
  void after(std::uint32_t i, std::int32_t before) {
    if (before != kNoEvent)
      edges_.push_back({start_node(i), end_node(static_cast<std::uint32_t>(before)), 0});
  }

  const RunRecord& record_;
  const StepEvents& step_;
  std::vector<std::uint32_t>& position_;
  std::vector<Edge> edges_;
};

}  // namespace

CriticalPath critical_path(const RunRecord& record, const StepEvents& step, const EventLinks& links) {
  CriticalPath path;
  if (step.index.empty()) return path;
  std::uint32_t last = step.index.front();
  for (const std::uint32_t i : step.index) {
    if (record.events[i].end > record.events[last].end) last = i;
  }
  std::vector<std::uint32_t> chain = cause_chain(links, last, step.index.size() + 1);
  // Walk back in time. `until` is the earliest moment explained so far, so that no time counts twice.
  Nanoseconds until = record.events[last].end;
  path.total = until - step.begin;
  for (const std::uint32_t i : chain) {
    const RunEvent& e = record.events[i];
    const Nanoseconds end = std::min(e.end, until);
    const Nanoseconds begin = std::min(e.ready, end);
    // A peer is entered at its start, where its own transfer does not count again.
    path.unexplained += until - end;
    path.by_kind[static_cast<std::size_t>(work_kind(record.labels[e.label]))] += end - begin;
    until = begin;
  }
  path.unexplained += std::max<Nanoseconds>(0, until - step.begin);
  std::reverse(chain.begin(), chain.end());
  path.events = std::move(chain);
  return path;
}

std::vector<Nanoseconds> slack_of_events(const RunRecord& record, const std::vector<StepEvents>& steps,
                                         const EventLinks& links) {
  std::vector<Nanoseconds> slack(record.events.size(), kUnknownSlack);
  std::vector<std::uint32_t> position(record.events.size(), 0);
  for (const StepEvents& step : steps) {
    if (!step.index.empty()) SlackGraph(record, step, links, position).solve(slack);
  }
  return slack;
}

}  // namespace plumbline
