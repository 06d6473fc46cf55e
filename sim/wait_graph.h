// WaitGraph: who cannot go on before whom, at the moment nothing moves any more. Simulator, checker and
// watchdog build one from their own state; the answer - which operations are dead, and the shortest circle
// among them - is found here, once.
//
// An operation goes on when all it waits for have - and, where it needs any one of several others, when one of
// these has. So the operations that can still go on are the least set that contains every node without waits
// and every node whose waits are satisfied by it; the rest is deadlocked. A node that can never happen (a
// receive that nobody posts) is marked with never(). A deadlock without such a node always contains a circle;
// one with it may not, and then the missing operation is the explanation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/verdict.h"

namespace plumbline {

class WaitGraph {
 public:
  // Returns the node's number, counted from 0. Numbers decide between equally good answers: lower ones win.
  int add(OperationRef operation);
  // `from` cannot go on before `to` has. A second wait between the same two nodes is ignored.
  void wait(int from, int to, std::string reason);
  // `from` needs one of all nodes it is given by this call.
  void wait_any(int from, int to, std::string reason);
  // `cause` is what Finding::cause says if this explains the deadlock, and `words` what its finding says instead of
  // naming the operation alone.
  void never(int node, std::string cause = {}, std::string words = {});

  int size() const { return static_cast<int>(operations_.size()); }
  // Why it never happens; empty where that was not said.
  struct Never {
    std::string cause;
    std::string words;
  };
  const Never& why_never(int node) const { return reasons_[static_cast<std::size_t>(node)]; }
  bool is_never(int node) const { return never_[static_cast<std::size_t>(node)] != 0; }
  const OperationRef& operation(int node) const { return operations_[static_cast<std::size_t>(node)]; }

  // Nodes that can never go on, ascending. Linear in nodes and waits.
  std::vector<int> deadlocked() const;
  // All waits, by `from`, then in the order they were added.
  std::vector<WaitEdge> waits() const;
  // A circle with the fewest waits in the first strongly connected component that has one, beginning at its
  // lowest node; empty: none. Edge i ends where edge i + 1 starts, and the last one closes the circle. In a
  // component too large to search from every node (tens of millions of steps) it is the shortest found until
  // then.
  std::vector<WaitEdge> shortest_cycle() const;

 private:
  struct Wait {
    int to = 0;
    std::string reason;
    bool any = false;
  };
  WaitEdge edge(int from, const Wait& wait) const;
  void add_wait(int from, Wait wait);
  std::vector<bool> dead() const;

  std::vector<OperationRef> operations_;
  std::vector<std::vector<Wait>> waits_;
  std::vector<std::uint8_t> never_;
  std::vector<Never> reasons_;
};

// The finding of a deadlock: operations on the circle (or, without one, those that wait for something that
// never comes), the circle, all waits, and `why` in words. The graph must have a deadlocked node.
Finding deadlock_finding(const WaitGraph& graph);

}  // namespace plumbline
