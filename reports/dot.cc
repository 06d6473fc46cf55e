#include "reports/dot.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "reports/analysis.h"
#include "reports/markup.h"
#include "reports/palette.h"

namespace plumbline {
namespace {

using OperationKey = std::tuple<Rank, std::int64_t, std::int32_t, std::string>;
OperationKey key_of(const OperationRef& op) { return {op.rank, op.item, op.microbatch, op.text}; }

bool same_edge(const WaitEdge& a, const WaitEdge& b) {
  return key_of(a.from) == key_of(b.from) && key_of(a.to) == key_of(b.to);
}

std::string node_name(std::size_t k) { return fmt::format("n{}", k); }

class StepGraph {
 public:
  StepGraph(const RunRecord& record, const Analysis& analysis, const StepAnalysis& step)
      : record_(record), links_(analysis.links), step_(step), chunks_(record) {
    for (std::size_t k = 1; k < step.path.events.size(); ++k) {
      critical_.insert({step.path.events[k - 1], step.path.events[k]});
    }
  }

  std::string run() {
    out_ = fmt::format(
        "digraph step_{} {{\n  rankdir=LR;\n  fontname=\"Helvetica\"; fontsize=12;\n  node [shape=box, "
        "style=filled, fontname=\"Helvetica\", "
        "fontsize=10, height=0.3];\n  edge [arrowsize=0.6];\n",
        step_.events.step);
    for (Rank rank = 0; rank < record_.ranks; ++rank) {
      if (step_.events.of_rank(rank).empty()) continue;
      out_ += fmt::format("  subgraph cluster_{0} {{ label=\"rank {0}\"; color=grey;\n", rank);
      for (const std::uint32_t i : step_.events.of_rank(rank)) node(i);
      out_ += "  }\n";
    }
    for (const std::uint32_t i : step_.events.index) edges_into(i);
    return out_ + "}\n";
  }

 private:
  void node(std::uint32_t i) {
    const RunEvent& e = record_.events[i];
    const EventLabel& label = record_.labels[e.label];
    const WorkKind kind = work_kind(label);
    const Colour fill = kind_colour(kind, chunks_.chunk(e.rank, label.stage), chunks_.chunks());
    out_ += fmt::format("    {} [label=\"{}\", fillcolor=\"{}\", fontcolor=\"{}\"{}];\n", node_name(i),
                        escape_dot(action_name(record_, e)), hex_colour(fill), hex_colour(ink_on(fill)),
                        is_communication(kind) ? ", shape=ellipse" : "");
  }

  void edges_into(std::uint32_t i) {
    std::vector<std::int32_t> done;
    const auto edge = [&](std::int32_t from, std::string_view style) {
      if (from == kNoEvent || std::find(done.begin(), done.end(), from) != done.end()) return;
      done.push_back(from);
      const bool red = critical_.count({static_cast<std::uint32_t>(from), i}) != 0;
      out_ += fmt::format("  {} -> {} [{}];\n", node_name(static_cast<std::size_t>(from)), node_name(i),
                          red ? "color=red, penwidth=3" : style);
    };
    edge(links_.data[0][i], "color=black");
    edge(links_.data[1][i], "color=black");
    const bool receive = work_kind(record_.labels[record_.events[i].label]) == WorkKind::kRecv;
    if (receive) edge(links_.match[i], "color=\"#0072b2\", style=dashed");
    edge(links_.stream[i], "color=grey70");
    if (links_.cause_kind[i] == CauseKind::kRank) edge(links_.cause[i], "color=grey70, style=dotted");
    // A collective, or a send that waited for its receiver, shows its other end only where that is on the
    // critical path.
    const std::int32_t cause = links_.cause[i];
    if (cause != kNoEvent && critical_.count({static_cast<std::uint32_t>(cause), i}) != 0) edge(cause, "");
  }

  const RunRecord& record_;
  const EventLinks& links_;
  const StepAnalysis& step_;
  ChunkTable chunks_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> critical_;
  std::string out_;
};

}  // namespace

std::string waits_dot(const Finding& finding) {
  const std::vector<WaitEdge>& edges = finding.waits.empty() ? finding.cycle : finding.waits;
  std::map<OperationKey, std::size_t> nodes;  // by rank first, so that a rank's operations are neighbours
  for (const WaitEdge& edge : edges) {
    nodes.insert({key_of(edge.from), 0});
    nodes.insert({key_of(edge.to), 0});
  }
  for (const OperationRef& op : finding.operations) nodes.insert({key_of(op), 0});
  std::size_t count = 0;
  for (auto& [key, number] : nodes) number = count++;
  std::string out =
      "digraph waits {\n  rankdir=LR;\n  fontname=\"Helvetica\"; fontsize=12;\n  node [shape=box, "
      "style=rounded, fontname=\"Helvetica\", "
      "fontsize=11];\n"
      "  edge [fontname=\"Helvetica\", fontsize=10];\n";
  Rank open = -1;
  for (const auto& [key, number] : nodes) {
    const Rank rank = std::get<0>(key);
    if (rank != open) {
      if (open != -1) out += "  }\n";
      out += fmt::format("  subgraph cluster_{0} {{ label=\"rank {0}\"; color=grey;\n", rank);
      open = rank;
    }
    out += fmt::format("    {} [label=\"{}\"];\n", node_name(number), escape_dot(std::get<3>(key)));
  }
  if (open != -1) out += "  }\n";
  for (const WaitEdge& edge : edges) {
    const bool red = std::any_of(finding.cycle.begin(), finding.cycle.end(),
                                 [&](const WaitEdge& c) { return same_edge(c, edge); });
    out += fmt::format(
        "  {} -> {} [label=\"{}\", {}];\n", node_name(nodes[key_of(edge.from)]),
        node_name(nodes[key_of(edge.to)]), escape_dot(edge.reason),
        red ? "color=red, fontcolor=red, penwidth=3" : "color=grey, fontcolor=grey40, style=dashed");
  }
  return out + "}\n";
}

Result<std::string> step_dot(const RunRecord& record, int step) {
  const Analysis analysis = analyze(record);
  const StepAnalysis* chosen = nullptr;
  for (const StepAnalysis& s : analysis.steps) {
    if (s.events.step == step) chosen = &s;
  }
  if (step < 0 && !analysis.steps.empty())
    chosen = &analysis.steps[static_cast<std::size_t>(analysis.typical)];
  if (chosen == nullptr) return fail(ErrorCode::kUsage, fmt::format("step {} is not in the record", step));
  if (chosen->events.index.size() > static_cast<std::size_t>(kMostDotNodes)) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "a graph of {} nodes cannot be read ({} at most): record fewer ranks or microbatches, or use "
            "the HTML report, where every box shows what it waited for",
            chosen->events.index.size(), kMostDotNodes));
  }
  return StepGraph(record, analysis, *chosen).run();
}

}  // namespace plumbline
