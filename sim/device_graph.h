// DeviceGraph: what the simulated devices have been given, as a graph. A node is one thing that starts, takes
// time and completes: a kernel, one kernel of a communication group, or a point that others wait for. It may
// start when all nodes it depends on are complete. Streams, communicator queues (N4, N6) and launch order
// (N46) are chains of such dependencies.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/units.h"

namespace plumbline::sim {

using NodeId = std::uint32_t;  // 0: nothing, complete from the start

enum class NodeKind : std::uint8_t {
  kKernel,
  kGroup,    // entries [first, first + count): one NCCL kernel
  kRead,     // a host variable is read
  kPoint,    // takes no time
  kConnect,  // completes when a cold connection is up; depends on nothing
  kComm,     // a call on a communicator: completes when all that take part have arrived
  kStarted,  // completes when the node `first` starts
  kFault,    // a kernel that ends in an illegal address
};

enum class Because : std::uint8_t {
  kStream,
  kCommunicator,
  kLaunchOrder,
  kCompute,
  kWaitsFor,
  kPlan,
  kQueue,
  kModule,
  kLegacy,
  kGroupStreams
};

struct Node {
  Nanoseconds start = 0;
  Nanoseconds end = 0;  // kGroup: the latest of the entries that are decided
  std::uint32_t thread = 0;
  std::uint32_t item = 0;
  std::uint32_t first = 0;  // kGroup: entries; kKernel: uses; kRead: the variable; kStarted: a node
  std::uint32_t count = 0;
  std::uint32_t open = 0;     // kGroup: entries whose end is not decided
  std::uint32_t missing = 0;  // dependencies that are not complete
  std::uint32_t out = 0;      // edges to nodes that depend on this one
  std::uint32_t in = 0;       // edges to nodes this one depends on
  NodeKind kind = NodeKind::kPoint;
  std::uint8_t stream = 0;
  bool started = false;
  bool done = false;
  bool wakes_host = false;  // its thread's host waits for it
  bool aborted = false;     // kGroup: ended by ncclCommAbort
  bool parked = false;      // kGroup: may start, but its device has no processors left for it (N45)
  bool in_line = false;     // kGroup: exploring, its place in the order of requests is chosen
  int processors = 0;       // kGroup: that it holds
  NodeId start_point = 0;   // the kStarted node of this one; 0: none
};

class DeviceGraph {
 public:
  DeviceGraph() { clear(); }
  void clear();

  // The node cannot start before seal(): first its dependencies are added.
  NodeId add(NodeKind kind, std::uint32_t thread, std::uint32_t item);
  // A second dependency on the same node is ignored: the reason given first counts.
  void depend(NodeId node, NodeId on, Because because);
  void seal(NodeId node);
  // Marks the node complete and releases what depends on it.
  void complete(NodeId node);
  // Completes a node whatever it still depends on; one that is sealed or held.
  void cut(NodeId node);
  // The next node that may start, in the order in which they became able to; 0: none.
  NodeId next_startable();

  Node& operator[](NodeId node) { return nodes_[node]; }
  const Node& operator[](NodeId node) const { return nodes_[node]; }
  NodeId size() const { return static_cast<NodeId>(nodes_.size()); }
  NodeId incomplete() const { return incomplete_; }

  // Calls visit(node, because) for every dependency that is not complete, the latest added first.
  template <typename Visit>
  void for_each_missing(NodeId node, Visit visit) const {
    for (std::uint32_t e = nodes_[node].in; e != 0; e = edges_[e].next_in) {
      if (!nodes_[edges_[e].from].done) visit(edges_[e].from, edges_[e].because);
    }
  }

 private:
  struct Edge {
    NodeId from = 0;
    NodeId to = 0;
    std::uint32_t next_out = 0;
    std::uint32_t next_in = 0;
    Because because = Because::kStream;
  };
  void release(NodeId node);

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<NodeId> startable_;
  std::size_t startable_head_ = 0;
  NodeId incomplete_ = 0;
};

}  // namespace plumbline::sim
