// Whether a Program did on the doubles what it does in the simulator.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/backends/cuda/driven.h"
#include "tests/backends/cuda/programs.h"

namespace plumbline::cuda {

inline void expect_same(const Outcome& sim, const Outcome& cuda) {
  ASSERT_EQ(sim.steps.size(), cuda.steps.size());
  for (std::size_t s = 0; s < sim.steps.size(); ++s) {
    EXPECT_EQ(sim.steps[s].completed, cuda.steps[s].completed);
    EXPECT_EQ(sim.steps[s].decisions, cuda.steps[s].decisions);
  }
  EXPECT_EQ(sim.lines, cuda.lines);
  EXPECT_EQ(sim.digests, cuda.digests);
  EXPECT_EQ(order_of(sim.record), order_of(cuda.record));
  ASSERT_EQ(sim.record.events.size(), cuda.record.events.size());
  // Live memory in host order.
  std::map<Rank, std::vector<Bytes>> live[2];
  for (const MemoryPoint& point : sim.record.memory) live[0][point.rank].push_back(point.live);
  for (const MemoryPoint& point : cuda.record.memory) live[1][point.rank].push_back(point.live);
  EXPECT_EQ(live[0], live[1]);
}

inline void expect_same_standstill(const Outcome& sim, const Outcome& cuda) {
  ASSERT_FALSE(cuda.steps.empty());
  const SimStep& there = sim.steps.back();
  const SimStep& here = cuda.steps.back();
  ASSERT_EQ(there.completed, here.completed);
  const auto deadlock = [](const SimStep& step) {
    for (const Finding& finding : step.findings) {
      if (finding.kind == FindingKind::kDeadlock) return finding;
    }
    return Finding{};
  };
  const Finding a = deadlock(there);
  const Finding b = deadlock(here);
  // The whole wait-for graph. Which of several equally good witnesses, and so which cause, is named first depends on
  // times.
  EXPECT_EQ(a.cause == "cycle", b.cause == "cycle");
  EXPECT_EQ(a.cycle.size(), b.cycle.size());
  using Wait = std::tuple<Rank, std::int64_t, std::string, Rank, std::int64_t, std::string>;
  const auto waits = [](const Finding& finding) {
    std::set<Wait> out;
    for (const WaitEdge& edge : finding.waits)
      out.insert({edge.from.rank, edge.from.item, edge.reason, edge.to.rank, edge.to.item, edge.to.text});
    return out;
  };
  EXPECT_EQ(waits(a), waits(b));
  EXPECT_FALSE(a.operations.empty());
  EXPECT_EQ(a.operations.size(), b.operations.size());
  // The doubles saw it by themselves, from the calls alone.
  ASSERT_TRUE(cuda.stuck.has_value());
  EXPECT_FALSE(cuda.stuck->modes.at(0).completes);
}

}  // namespace plumbline::cuda
