// Kernels of ranks that share cores: exact times, by hand.
#include "sim/cores.h"

#include <gtest/gtest.h>

#include "engine/config/validate.h"
#include "engine/program/lower.h"
#include "sim/run.h"

namespace plumbline {
namespace {

using sim::Cores;

// Completes everything in order: (time, node).
std::vector<std::pair<Nanoseconds, sim::NodeId>> drained(Cores& cores) {
  std::vector<std::pair<Nanoseconds, sim::NodeId>> out;
  while (const auto next = cores.next()) {
    out.emplace_back(next->time, next->node);
    cores.complete(*next);
  }
  return out;
}

using Ends = std::vector<std::pair<Nanoseconds, sim::NodeId>>;

TEST(Cores, AsManyAsCoresDoNotDisturbEachOther) {
  Cores cores(2, 0.0, 1);
  cores.start(0, 0, 1, 1000, 0);
  cores.start(0, 1, 2, 1500, 200);
  EXPECT_EQ(drained(cores), (Ends{{1000, 1}, {1700, 2}}));
  EXPECT_TRUE(cores.idle());
}

TEST(Cores, ThreeOnTwoCoresHaveTwoThirdsEach) {
  Cores cores(2, 0.0, 1);
  for (sim::NodeId node = 1; node <= 3; ++node) cores.start(0, node, node, 1000, 0);
  EXPECT_EQ(drained(cores), (Ends{{1500, 1}, {1500, 2}, {1500, 3}}));
}

// One core: 300 alone, then halves. The second is over at 300 + 2 * 400; the first has 300 left and the core.
TEST(Cores, WhatStartsLaterSharesFromThenOn) {
  Cores cores(1, 0.0, 1);
  cores.start(0, 0, 1, 1000, 0);
  cores.start(0, 1, 2, 400, 300);
  EXPECT_EQ(drained(cores), (Ends{{1100, 2}, {1400, 1}}));
}

// With both cores busy each takes a quarter longer: 800 of 1000 are done at 1000, the rest alone.
TEST(Cores, BusyNeighboursSlowAKernelDown) {
  Cores cores(2, 0.25, 1);
  cores.start(0, 0, 1, 1000, 0);
  cores.start(0, 1, 2, 800, 0);
  EXPECT_EQ(drained(cores), (Ends{{1000, 2}, {1200, 1}}));
}

TEST(Cores, MachinesHaveTheirOwn) {
  Cores cores(1, 0.0, 2);
  cores.start(0, 0, 1, 1000, 0);
  cores.start(1, 1, 2, 1000, 0);
  EXPECT_EQ(drained(cores), (Ends{{1000, 1}, {1000, 2}}));
}

RunConfig config_of(int pp, int microbatches, int cores, int dp = 1) {
  RunConfig config;
  config.schedule.kind = ScheduleKind::kGpipe;
  config.parallel.pp = pp;
  config.parallel.dp = dp;
  config.schedule.microbatches = microbatches;
  config.model.layers = pp;
  config = validate(config).value();
  config.time.forward = {100};
  config.time.backward = {200};
  config.time.optimizer = 0;
  config.time.link = {0, 0.0};
  config.time.cores = cores;
  return config;
}

Nanoseconds makespan(const RunConfig& config) {
  LowerOptions options;
  options.tail = StepTail::kSchedule;
  const Program program = program_of(config, default_sizes(config), options).value();
  return simulate_run(config, program, 1).value().verdict.modes.at(0).makespan;
}

// On one core a pipeline takes what its ranks compute together, whatever its shape; with a core a rank, what it took
// without any.
TEST(Cores, APipelineOnOneCoreTakesTheSumOfItsWork) {
  EXPECT_EQ(makespan(config_of(2, 4, 1)), 2 * 4 * 300);
  EXPECT_EQ(makespan(config_of(4, 8, 1)), 4 * 8 * 300);
  EXPECT_EQ(makespan(config_of(4, 8, 4)), makespan(config_of(4, 8, 0)));
}

// Two replicas on two cores: where one stage runs, both have a core; where both stages do, half of one. Forwards
// 100 + 3 * 200 + 100, backwards twice that.
TEST(Cores, ReplicasShareThem) { EXPECT_EQ(makespan(config_of(2, 4, 2, 2)), 2400); }

// Two machines with two cores and two ranks each: nobody shares.
TEST(Cores, NodesAreMachines) {
  RunConfig config = config_of(2, 4, 2, 2);
  config.sim.ranks_per_node = 2;
  EXPECT_EQ(makespan(config), 1500);
}

}  // namespace
}  // namespace plumbline
