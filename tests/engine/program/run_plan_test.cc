#include "engine/program/run_plan.h"

#include <gtest/gtest.h>

#include "engine/config/batch_schedule.h"
#include "engine/config/validate.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

RunConfig valid(RunConfig config) {
  const Result<RunConfig> result = validate(std::move(config), {}, Purpose::kCheck);
  EXPECT_TRUE(result) << (result ? "" : result.error().text());
  return result ? *result : RunConfig{};
}

RunPlan planned(const RunConfig& config, const RunPlanOptions& options = {}) {
  Result<RunPlan> plan = plan_run(config, default_sizes(config), options);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
  return plan ? std::move(*plan) : RunPlan{};
}

TEST(RunPlan, AConstantBatchIsOneProgram) {
  const RunConfig config = valid(test::config_of(ScheduleKind::kOneFOneB, 2, 1, 4));
  const RunPlan plan = planned(config);
  EXPECT_EQ(plan.train.size(), 1U);
  EXPECT_EQ(plan.stretches.size(), 1U);
  EXPECT_EQ(plan.stretch_of(0).batch.num_microbatches, 4);
  EXPECT_EQ(plan.stretch_of(1000).program, 0U);
  EXPECT_EQ(program_digest(plan.main()), program_digest(*program_of(config, default_sizes(config))));
  EXPECT_FALSE(plan.evaluation || plan.param_sync);
}

TEST(RunPlan, OneProgramANumberOfMicrobatches) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 2, 1, 8, 0, 2);
  config.schedule.batch_steps = "0:4 8:8 24:4 40:16";
  config.train.iterations = 12;
  config = valid(config);
  const RunPlan plan = planned(config);
  ASSERT_EQ(plan.train.size(), 3U);
  EXPECT_EQ(plan.train[0].microbatches, 2);
  EXPECT_EQ(plan.train[1].microbatches, 4);
  EXPECT_EQ(plan.train[2].microbatches, 8);
  EXPECT_EQ(&plan.main(), &plan.train[2]);
  // Samples 0, 4 | 8, 16 | 24, 28, 32, 36 | 40, ...
  std::vector<int> microbatches;
  for (int i = 0; i < 12; ++i) microbatches.push_back(plan.train[plan.stretch_of(i).program].microbatches);
  EXPECT_EQ(microbatches, (std::vector<int>{2, 2, 4, 4, 2, 2, 2, 2, 8, 8, 8, 8}));
}

// Whatever the ramp: the plan has exactly the batches that the schedule gives step by step.
TEST(RunPlan, FollowsTheScheduleOfBatches) {
  RunConfig config = test::config_of(ScheduleKind::kInterleaved, 2, 2, 12);
  config.schedule.rampup = {2, 2, 40};
  config.schedule.group_size = 2;
  config.schedule.global_batch_size = 12;
  config.train.iterations = 15;
  config = valid(config);
  const RunPlan plan = planned(config);
  EXPECT_EQ(plan.train.size(), 6U);
  const auto batches = num_microbatches_of(config);
  ASSERT_TRUE(batches);
  std::int64_t consumed = 0;
  for (int i = 0; i < config.train.iterations; ++i) {
    const auto batch = batches->at(consumed);
    ASSERT_TRUE(batch);
    const RunPlan::Stretch& stretch = plan.stretch_of(i);
    EXPECT_EQ(stretch.batch, *batch) << i;
    EXPECT_EQ(plan.train[stretch.program].microbatches, batch->num_microbatches) << i;
    consumed += batch->running;
  }
}

}  // namespace
}  // namespace plumbline
