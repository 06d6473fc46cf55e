// Small configurations, and whether a Program did on the doubles what it does in the simulator.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "engine/schedule/generator.h"
#include "tests/backends/cuda/driven.h"
#include "tests/engine/program/config.h"

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

inline RunConfig config_of(ScheduleKind kind, int pp, int dp, int chunks, Precision precision) {
  RunConfig config = test::config_of(kind, pp, chunks, 2 * pp, 0, dp);
  config.train.precision = precision;
  config.time.forward = {20000};
  config.time.backward = {40000};
  config.time.link = {2000, 1e9};
  return config;
}

inline ModelSizes small_sizes(const RunConfig& config, int stages) {
  ModelSizes sizes = default_sizes(config);
  sizes.activation = 64;
  sizes.stash.assign(static_cast<std::size_t>(stages), 32);
  return sizes;
}

inline Result<Program> program_of(const RunConfig& config) {
  const Result<Schedule> schedule = schedule_of(config);
  if (!schedule) return tl::unexpected(schedule.error());
  return lower(config, *schedule, small_sizes(config, schedule->stages));
}

}  // namespace plumbline::cuda
