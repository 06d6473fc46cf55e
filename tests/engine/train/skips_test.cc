// Runs whose steps are skipped say so: L23 of tests/oracles/public_reports, and scales that cannot help.
#include <gtest/gtest.h>

#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

RunConfig overflowing(Precision precision, int iterations, int overflows) {
  RunConfig config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 2, 1}, precision);
  config.train.iterations = iterations;
  config.train.eval_iterations = 1;
  for (int i = 1; i <= overflows; ++i) config.faults.overflow.push_back({i % 2, i});
  return config;
}

// bf16, constant scale 1, an overflow in each of 5 iterations: 5 skips, no update, and no success.
TEST(FamilyL, DeepspeedaiDeepSpeed8415ARunWithoutAnUpdateIsNoSuccess) {
  RunConfig config = overflowing(Precision::kBf16, 5, 5);
  config.loss_scale.constant = 1.0;
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome) << outcome.error().text();
  EXPECT_TRUE(outcome->completed);
  EXPECT_EQ(outcome->skipped, 5);
  EXPECT_EQ(outcome->updates, 0);
  EXPECT_EQ(outcome->exit_code, 1);
  ASSERT_EQ(outcome->notices.size(), 1u);
  EXPECT_NE(outcome->notices[0].find("none of the 5 steps updated the model"), std::string::npos)
      << outcome->notices[0];
  const std::vector<StepRow> rows = test::training_rows(trainer->record());
  ASSERT_EQ(rows.size(), 5u);
  for (const StepRow& row : rows) {
    EXPECT_TRUE(row.skipped);
    EXPECT_EQ(row.scale, 1.0);
    EXPECT_EQ(row.params_digest, rows[0].params_digest);
  }
  for (const StageWorker* worker : trainer->workers()) EXPECT_EQ(worker->model().scheduler().num_steps(), 0);
}

TEST(Skips, OneUpdateIsASuccessAndSkipsAreCounted) {
  const std::unique_ptr<Trainer> trainer = test::make_trainer(overflowing(Precision::kFp16, 5, 4));
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->skipped, 4);
  EXPECT_EQ(outcome->updates, 1);
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_TRUE(outcome->notices.empty());
}

TEST(Skips, OverflowsAtTheLowestScaleAreNamed) {
  RunConfig config = overflowing(Precision::kFp16, 14, 13);
  // The first step is a success, the others overflow at the minimum.
  for (OverflowFault& fault : config.faults.overflow) ++fault.iteration;
  config.loss_scale.initial = config.loss_scale.minimum = 16.0;
  config.loss_scale.hysteresis = 1;
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->exit_code, 0);
  ASSERT_EQ(outcome->notices.size(), 1u);
  EXPECT_NE(outcome->notices[0].find("the last 13 steps overflowed at the lowest loss scale, 16"),
            std::string::npos)
      << outcome->notices[0];
}

TEST(Skips, ATooLargeScaleTrainsNothing) {
  RunConfig config = overflowing(Precision::kFp16, 4, 0);
  config.loss_scale.initial = 0x1p126;
  config.loss_scale.growth_factor = 4.0;
  config.loss_scale.window = 1;
  config.loss_scale.capped = false;
  config.loss_scale.hysteresis = 100;  // overflows do not lower it
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->updates, 0);
  EXPECT_EQ(outcome->exit_code, 1);
}

}  // namespace
}  // namespace plumbline
