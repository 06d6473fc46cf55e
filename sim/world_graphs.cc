// CUDA graphs (N18): streams of their own while one is captured, and what its launch is to everybody else.
#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/world.h"

namespace plumbline::sim {

// Opens streams that begin where the graph is launched, and at its end gathers them there and launches it.
Result<Token> World::graph(std::uint32_t thread, int stream, bool begin) {
  Graph& graph = threads_[thread].graph;
  if (begin) {
    graph.start = graph_.add(NodeKind::kPoint, thread, kNoItem);
    enqueue(graph.start, stream);
    graph.streams.assign(program().streams.size(), Stream{graph.start, {}});
    graph.stream = stream;
    graph.open = true;
    return Token{0};
  }
  const NodeId end = graph_.add(NodeKind::kPoint, thread, kNoItem);
  for (std::size_t s = 0; s < graph.streams.size(); ++s)
    graph_.depend(end, tail(thread, static_cast<int>(s), kNoItem), Because::kWaitsFor);
  graph.open = false;
  enqueue(end, graph.stream);
  graph_.seal(end);
  graph_.seal(graph.start);
  threads_[thread].graphs.emplace_back(graph.start, end);
  return Token{options_.model.launch_blocking ? end : 0};
}

NodeId World::seen(NodeId node) const {
  const auto& graphs = threads_[graph_[node].thread].graphs;
  const auto after = std::upper_bound(graphs.begin(), graphs.end(), std::pair(node, ~NodeId{0}));
  return after == graphs.begin() || node > std::prev(after)->second ? node : std::prev(after)->second;
}

}  // namespace plumbline::sim
