// Ranks that share cores: the checker's makespans are the simulator's, which are what a record predicts.
#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"
#include "sim/verify/check.h"
#include "sim/verify/quotient.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

RunConfig config_of(int pp, int dp, int cores) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, pp, 1, 2 * pp, pp, dp);
  config.time.forward = {1000};
  config.time.backward = {2100};
  config.time.optimizer = 500;
  config.time.link = {70, 1e10};
  config.time.cores = cores;
  config.time.interference = 0.25;
  return config;
}

std::vector<ModeVerdict> checked(const RunConfig& config) {
  const auto program = program_of(config, default_sizes(config));
  EXPECT_TRUE(program) << program.error().text();
  const auto linked = link_program(*program);
  CheckOptions options;
  options.time = TimeModel(config);
  const auto verdict = check_program(*linked, options);
  EXPECT_TRUE(verdict) << verdict.error().text();
  EXPECT_TRUE(verdict->holds());
  // Whoever shares cores has no quotient: what a replica takes depends on the others.
  const auto quotient = check_quotient(*program, options);
  if (config.time.cores > 0) {
    EXPECT_FALSE(quotient);
  }
  for (const ModeVerdict& mode : verdict->modes) {
    const auto simulated = simulate(*linked, *model_named(mode.mode), options.time);
    EXPECT_TRUE(simulated);
    EXPECT_EQ(simulated->makespan, mode.makespan) << mode.mode << " on " << config.time.cores << " cores";
  }
  return verdict->modes;
}

TEST(CheckWithCores, MakespansAreTheSimulators) {
  for (const auto& [pp, dp] : {std::pair{2, 1}, std::pair{4, 1}, std::pair{2, 2}}) {
    Nanoseconds before = 0;
    for (const int cores : {8, 4, 3, 2, 1}) {
      const std::vector<ModeVerdict> modes = checked(config_of(pp, dp, cores));
      ASSERT_EQ(2u, modes.size());
      EXPECT_GE(modes.back().makespan, before) << cores << " cores";
      before = modes.back().makespan;
    }
    // On one core everything is in turn: at least the work of all ranks.
    EXPECT_GE(before, Nanoseconds{pp} * dp * (2 * pp) * 3100);
  }
}

}  // namespace
}  // namespace plumbline
