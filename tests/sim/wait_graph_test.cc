#include "sim/wait_graph.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

WaitGraph graph_of(int nodes, const std::vector<std::pair<int, int>>& waits) {
  WaitGraph graph;
  for (int i = 0; i < nodes; ++i) graph.add({i, i, -1, "n" + std::to_string(i)});
  for (const auto& [from, to] : waits) graph.wait(from, to, "r" + std::to_string(from) + std::to_string(to));
  return graph;
}

std::string path(const std::vector<WaitEdge>& cycle) {
  std::string text;
  for (const WaitEdge& edge : cycle) text += edge.from.text + ">" + edge.to.text + " ";
  return text;
}

TEST(WaitGraph, OnlyWhatReachesACircleOrNothingIsDead) {
  WaitGraph graph = graph_of(7, {{0, 1}, {1, 2}, {2, 1}, {3, 4}, {5, 6}});
  EXPECT_EQ(graph.deadlocked(), (std::vector<int>{0, 1, 2}));
  graph.never(6);
  EXPECT_EQ(graph.deadlocked(), (std::vector<int>{0, 1, 2, 5, 6}));
}

TEST(WaitGraph, TheShortestCircleOfTheFirstComponent) {
  const WaitGraph graph = graph_of(8, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {2, 1}, {5, 6}, {6, 5}, {7, 7}});
  EXPECT_EQ(path(graph.shortest_cycle()), "n1>n2 n2>n1 ");
  EXPECT_EQ(path(graph_of(3, {{0, 1}, {1, 2}}).shortest_cycle()), "");
  EXPECT_EQ(path(graph_of(2, {{1, 1}}).shortest_cycle()), "n1>n1 ");
}

TEST(WaitGraph, AnswersDoNotDependOnTheOrderOfWaits) {
  const WaitGraph a = graph_of(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 0}});
  const WaitGraph b = graph_of(4, {{3, 0}, {2, 3}, {0, 1}, {0, 2}, {1, 3}});
  EXPECT_EQ(path(a.shortest_cycle()), path(b.shortest_cycle()));
}

TEST(WaitGraph, ALargeCircleIsFoundInTime) {
  WaitGraph graph;
  constexpr int kNodes = 20000;
  for (int i = 0; i < kNodes; ++i) graph.add({i, i, -1, {}});
  for (int i = 0; i < kNodes; ++i) graph.wait(i, (i + 1) % kNodes, {});
  for (int i = 2; i < kNodes; ++i) graph.wait(i, i - 2, {});
  EXPECT_EQ(graph.shortest_cycle().size(), 3U);
  EXPECT_EQ(graph.deadlocked().size(), static_cast<std::size_t>(kNodes));
}

TEST(WaitGraph, AnyOneOfSeveralIsEnough) {
  WaitGraph graph;
  for (const char* name : {"a", "b", "c", "d"}) graph.add({0, -1, -1, name});
  graph.wait_any(0, 1, "any");  // a needs b or c; b needs a; c is free
  graph.wait_any(0, 2, "any");
  graph.wait(1, 0, "all");
  EXPECT_TRUE(graph.deadlocked().empty());
  EXPECT_TRUE(graph.shortest_cycle().empty());  // the circle of a and b is no deadlock
  graph.wait(2, 3, "all");
  graph.never(3);
  EXPECT_EQ(graph.deadlocked(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(graph.shortest_cycle().size(), 2U);
}

TEST(WaitGraph, FindingInWords) {
  WaitGraph graph = graph_of(2, {{0, 1}, {1, 0}});
  const Finding circle = deadlock_finding(graph);
  EXPECT_EQ(circle.operations.size(), 2U);
  EXPECT_EQ(circle.why,
            "2 operations on 2 ranks wait for each other in a circle: n0 on rank 0 waits for n1 on rank 1 "
            "(r01), and so on "
            "round. 2 ranks cannot go on.");
  WaitGraph missing = graph_of(3, {{0, 1}, {1, 2}});
  missing.never(2);
  const Finding never = deadlock_finding(missing);
  EXPECT_TRUE(never.cycle.empty());
  ASSERT_EQ(never.operations.size(), 1U);
  EXPECT_EQ(never.operations[0].text, "n1");
}

}  // namespace
}  // namespace plumbline
