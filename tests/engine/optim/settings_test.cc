#include "engine/optim/settings.h"

#include <gtest/gtest.h>

#include "engine/config/batch_schedule.h"

namespace plumbline {
namespace {

RunConfig config_of(int microbatches, int micro, int dp, int iterations) {
  RunConfig config;
  config.schedule.microbatches = microbatches;
  config.train.micro_batch_size = micro;
  config.parallel.dp = dp;
  config.train.iterations = iterations;
  return config;
}

TEST(Settings, LengthsAreInSamplesWhateverUnitTheyWereGivenIn) {
  RunConfig config = config_of(4, 2, 2, 100);  // 16 samples a step
  config.optimizer.warmup_iterations = 10;
  const auto settings = SchedulerSettings::of(config);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->lr_warmup_steps, 160);
  EXPECT_EQ(settings->lr_decay_steps, 1600);
  EXPECT_EQ(settings->wd_incr_steps, 1600);
  EXPECT_EQ(settings->wsd_decay_steps, 0);

  config.optimizer.decay_iterations = 50;
  config.optimizer.wsd_decay_iterations = 5;
  config.optimizer.warmup_iterations = 0;
  config.optimizer.warmup_samples = 33;
  const auto given = SchedulerSettings::of(config);
  ASSERT_TRUE(given);
  EXPECT_EQ(given->lr_warmup_steps, 33);
  EXPECT_EQ(given->lr_decay_steps, 800);
  EXPECT_EQ(given->wd_incr_steps, 1600);
  EXPECT_EQ(given->wsd_decay_steps, 80);

  config.optimizer.warmup_samples = 0;
  config.optimizer.warmup_fraction = 0.01;
  config.optimizer.decay_samples = 777;
  const auto fraction = SchedulerSettings::of(config);
  ASSERT_TRUE(fraction);
  EXPECT_EQ(fraction->lr_warmup_steps, 7);
  EXPECT_EQ(fraction->lr_decay_steps, 777);
}

TEST(Settings, TheEndOfAWsdDecayIsCountedInItsOwnSteps) {
  // 20 steps of 8 samples, then 16 each: the last 90 of 100 steps begin after 10 steps of 8.
  RunConfig config = config_of(8, 2, 1, 100);
  config.schedule.rampup = {8, 8, 160};
  config.optimizer.decay = DecayStyle::kWsd;
  config.optimizer.wsd_decay_iterations = 90;
  const auto settings = SchedulerSettings::of(config);
  ASSERT_TRUE(settings) << settings.error().text();
  EXPECT_EQ(settings->lr_decay_steps, 1440);
  EXPECT_EQ(settings->wsd_decay_steps, 1440 - 80);
  config.optimizer.wsd_decay_iterations = 101;
  EXPECT_FALSE(SchedulerSettings::of(config));
}

TEST(Settings, WeightDecayIsThatOfTheOptimizerUnlessItGrows) {
  RunConfig config = config_of(1, 1, 1, 10);
  config.optimizer.weight_decay = 0.3;
  const auto settings = SchedulerSettings::of(config);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->start_weight_decay, 0.3);
  EXPECT_EQ(settings->end_weight_decay, 0.3);
  config.optimizer.start_weight_decay = 0.0;
  config.optimizer.end_weight_decay = 0.5;
  config.optimizer.weight_decay_incr = WdStyle::kCosine;
  const auto grows = SchedulerSettings::of(config);
  ASSERT_TRUE(grows);
  EXPECT_EQ(grows->start_weight_decay, 0.0);
  EXPECT_EQ(grows->end_weight_decay, 0.5);
  EXPECT_EQ(grows->weight_decay_incr_style, WdStyle::kCosine);
}

TEST(Settings, SchedulerOptionsTakeRatesFromTheOptimizerAndTheRestFromTheScheduler) {
  RunConfig config = config_of(1, 4, 1, 10);
  config.optimizer.lr = 3e-4;
  config.optimizer.min_lr = 3e-5;
  config.optimizer.warmup_init = 1e-6;
  config.optimizer.warmup_iterations = 2;
  config.optimizer.decay = DecayStyle::kCosine;
  config.optimizer.override_scheduler = true;
  const auto settings = SchedulerSettings::of(config);
  ASSERT_TRUE(settings);
  const ParamSchedulerOptions options = scheduler_options(OptimizerSettings::of(config), *settings);
  EXPECT_EQ(options.init_lr, 1e-6);
  EXPECT_EQ(options.max_lr, 3e-4);
  EXPECT_EQ(options.min_lr, 3e-5);
  EXPECT_EQ(options.lr_warmup_steps, 8);
  EXPECT_EQ(options.lr_decay_steps, 40);
  EXPECT_EQ(options.lr_decay_style, DecayStyle::kCosine);
  EXPECT_TRUE(options.override_checkpoint);
  EXPECT_FALSE(options.use_checkpoint);
}

TEST(Settings, SamplesOfARunAreTheGivenOnesOrThoseOfItsSteps) {
  RunConfig config = config_of(2, 2, 2, 7);
  EXPECT_EQ(*samples_of_run(config), 56);
  config.train.samples = 61;
  EXPECT_EQ(*samples_of_run(config), 61);
  EXPECT_EQ(*samples_of(config, 3), 24);
}

TEST(Settings, BatchesOfAConfiguration) {
  RunConfig config = config_of(2, 2, 2, 7);
  EXPECT_EQ(num_microbatches_of(config)->at(0)->num_microbatches, 2);
  config.schedule.batch_steps = "0:4 100:8";
  const auto steps = num_microbatches_of(config);
  ASSERT_TRUE(steps) << steps.error().text();
  EXPECT_EQ(steps->at(99)->num_microbatches, 1);
  EXPECT_EQ(steps->at(100)->num_microbatches, 2);
  config.schedule.batch_steps.clear();
  config.schedule.rampup = {4, 4};
  EXPECT_FALSE(num_microbatches_of(config));
}

}  // namespace
}  // namespace plumbline
