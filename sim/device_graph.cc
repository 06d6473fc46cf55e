#include "sim/device_graph.h"

#include "engine/base/assert.h"

namespace plumbline::sim {

void DeviceGraph::clear() {
  nodes_.clear();
  edges_.clear();
  startable_.clear();
  startable_head_ = 0;
  nodes_.emplace_back().done = true;
  edges_.emplace_back();
  incomplete_ = 0;
}

NodeId DeviceGraph::add(NodeKind kind, std::uint32_t thread, std::uint32_t item) {
  Node& node = nodes_.emplace_back();
  node.kind = kind;
  node.thread = thread;
  node.item = item;
  node.missing = 1;  // held until seal()
  ++incomplete_;
  return static_cast<NodeId>(nodes_.size() - 1);
}

void DeviceGraph::depend(NodeId node, NodeId on, Because because) {
  if (nodes_[on].done || on == node) return;
  for (std::uint32_t e = nodes_[node].in; e != 0; e = edges_[e].next_in) {
    if (edges_[e].from == on) return;
  }
  Edge edge;
  edge.from = on;
  edge.to = node;
  edge.because = because;
  edge.next_out = nodes_[on].out;
  edge.next_in = nodes_[node].in;
  nodes_[on].out = nodes_[node].in = static_cast<std::uint32_t>(edges_.size());
  edges_.push_back(edge);
  ++nodes_[node].missing;
}

void DeviceGraph::seal(NodeId node) { release(node); }

void DeviceGraph::release(NodeId node) {
  PL_ASSERT(nodes_[node].missing > 0);
  if (--nodes_[node].missing == 0 && !nodes_[node].done) startable_.push_back(node);
}

void DeviceGraph::complete(NodeId node) {
  PL_ASSERT(!nodes_[node].done && nodes_[node].missing == 0);
  cut(node);
}

void DeviceGraph::cut(NodeId node) {
  PL_ASSERT(!nodes_[node].done);
  nodes_[node].done = true;
  --incomplete_;
  for (std::uint32_t e = nodes_[node].out; e != 0; e = edges_[e].next_out) release(edges_[e].to);
}

NodeId DeviceGraph::next_startable() {
  while (startable_head_ < startable_.size()) {
    const NodeId node = startable_[startable_head_++];
    if (!nodes_[node].done) return node;
  }
  startable_.clear();
  startable_head_ = 0;
  return 0;
}

}  // namespace plumbline::sim
