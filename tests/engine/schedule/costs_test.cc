// Costs beyond F, B, I and W: recomputation, overlapped pairs, links that differ; and what a rank holds in bytes.
#include <gtest/gtest.h>

#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

StageCosts unit() {
  StageCosts costs;
  costs.backward = {2};
  return costs;
}

Nanoseconds makespan(const Schedule& schedule, const StageCosts& costs) {
  return evaluate(schedule, costs).value().makespan;
}

// 1F1B with full recomputation: a backward costs F + B, so (m + p - 1)(2F + B).
TEST(Costs, RecomputationGoesAheadOfEveryBackward) {
  const Schedule schedule = test::generate("1f1b", {4, 1, 8}).value();
  EXPECT_EQ(makespan(schedule, unit()), (8 + 3) * 3);
  StageCosts costs = unit();
  costs.recompute = {1};
  EXPECT_EQ(makespan(schedule, costs), (8 + 3) * 4);
  ActionTimes times;
  ASSERT_TRUE(evaluate(schedule, costs, &times));
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    const bool backward = schedule.actions[i].kind == ActionKind::kBackward;
    EXPECT_EQ(times.end[i] - times.start[i], backward ? 3 : 1);
    EXPECT_EQ(times.recomputed[i] - times.start[i], backward ? 1 : 0);
  }
}

TEST(Costs, RecomputationGoesAheadOfTheInputGradientNotOfTheWeights) {
  const Schedule schedule = test::generate("zb-h1", {2, 1, 4}).value();
  StageCosts costs;
  costs.recompute = {0, 5};
  ActionTimes times;
  ASSERT_TRUE(evaluate(schedule, costs, &times));
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action& action = schedule.actions[i];
    const bool again = action.kind == ActionKind::kInputGrad && action.stage == 1;
    EXPECT_EQ(times.end[i] - times.start[i], again ? 6 : 1) << print_action(action);
  }
}

TEST(Costs, APairsTimeHoldsForBothHalvesAndWhatIsRecomputedComesOnTop) {
  const Schedule schedule = test::generate("dualpipe-v", {2, 2, 4}).value();
  StageCosts costs = unit();
  costs.pair = {2};
  costs.recompute = {1};
  ActionTimes times;
  ASSERT_TRUE(evaluate(schedule, costs, &times));
  int pairs = 0;
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    if (schedule.actions[i].paired == 0) continue;
    EXPECT_EQ(times.end[i] - times.start[i], 3);
    EXPECT_EQ(times.end[i], times.end[i + 1]);
    ++pairs;
  }
  EXPECT_GT(pairs, 4);
}

TEST(Costs, OneSlowLink) {
  const Schedule schedule = test::generate("1f1b", {3, 1, 1}).value();
  StageCosts costs = unit();
  EXPECT_EQ(makespan(schedule, costs), 9);
  costs.hop = 10;
  EXPECT_EQ(makespan(schedule, costs), 9 + 4 * 10);
  costs.hops[{0, 1}] = 100;  // activations alone; gradients go from 1 to 0
  EXPECT_EQ(makespan(schedule, costs), 9 + 3 * 10 + 100);
  EXPECT_EQ(hop_cost(costs, 0, 1), 100);
  EXPECT_EQ(hop_cost(costs, 1, 0), 10);
}

TEST(Costs, WhatIsNegativeOrHasTheWrongLengthIsRefused) {
  StageCosts costs = unit();
  costs.recompute = {1, 2};
  EXPECT_NE(check_costs(costs, 3, "x").error().message.find("the recomputation time has 2 entries"),
            std::string::npos);
  costs.recompute = {-1};
  EXPECT_FALSE(check_costs(costs, 3, "x"));
  costs = unit();
  costs.hops[{0, 1}] = -1;
  EXPECT_NE(check_costs(costs, 3, "x").error().message.find("link"), std::string::npos);
}

TEST(Costs, HeldBytesByStage) {
  const Schedule schedule = test::generate("1f1b", {2, 1, 4}).value();
  EXPECT_EQ(peak_held(schedule, {{100, 7}, {0}, {}}), (std::vector<std::int64_t>{200, 7}));
  // One unit a stage, until W: what the evaluator counts.
  for (const char* name : {"zb-h1", "zb-h2", "zb-v", "v-half", "dualpipe-v", "chimera", "interleaved"}) {
    for (const int chunks : {1, 2}) {
      const Result<Schedule> made = test::generate(name, {4, chunks, 8});
      if (!made) continue;
      const Evaluation counted = evaluate(*made, {}).value();
      const std::vector<std::int64_t> held = peak_held(*made, {});
      EXPECT_EQ(held, std::vector<std::int64_t>(counted.peak_until_weight_grad.begin(),
                                                counted.peak_until_weight_grad.end()))
          << name;
      // Freed by I: the other count.
      const std::vector<std::int64_t> early = peak_held(*made, {{1}, {1}, {}});
      EXPECT_EQ(early, std::vector<std::int64_t>(counted.peak_until_input_grad.begin(),
                                                 counted.peak_until_input_grad.end()))
          << name;
    }
  }
}

}  // namespace
}  // namespace plumbline
