// Rules of the optimizer's options: which belong together, and what Megatron refuses too.
#include <gtest/gtest.h>

#include "engine/config/batch_schedule.h"
#include "engine/config/explain.h"
#include "tests/engine/config/config_support.h"

namespace plumbline {
namespace {

TEST(ValidateOptimizer, NumbersHaveBounds) {
  refuses({{{"--lr-warmup-init", "-1"}, "optimizer.warmup_init"},
           {{"--decoupled-lr", "-1"}, "optimizer.decoupled_lr"},
           {{"--sgd-momentum", "1"}, "optimizer.momentum=1 (--sgd-momentum) must be in [0, 1)"},
           {{"--lr-warmup-fraction", "1"},
            "optimizer.warmup_fraction=1 (--lr-warmup-fraction) must be in [0, 1)"},
           {{"--optimizer-offload-fraction", "1.5"}, "must be in [0, 1]"},
           {{"--optimizer-offload-fraction", "-0.5"}, "must be in [0, 1]"},
           {{"--ddp-bucket-size", "-1"}, "optimizer.bucket_size"},
           {{"--lr-decay-iters", "-1"}, "optimizer.decay_iterations"},
           {{"--lr-decay-samples", "-1"}, "optimizer.decay_samples"},
           {{"--lr-wsd-decay-iters", "-1"}, "optimizer.wsd_decay_iterations"},
           {{"--train-samples", "-1"}, "train.samples"}});
  EXPECT_TRUE(check({"--optimizer-offload-fraction", "0"}).ok());
}

TEST(ValidateOptimizer, RatesRelate) {
  refuses(
      {{{"--lr", "0.1", "--lr-warmup-init", "0.2"},
        "optimizer.warmup_init=0.2 (--lr-warmup-init) must not exceed"},
       {{"--decoupled-min-lr", "0.1"}, "needs optimizer.decoupled_lr"},
       {{"--decoupled-lr", "0.1", "--decoupled-min-lr", "0.2"}, "must not exceed optimizer.decoupled_lr=0.1"},
       {{"--override-opt_param-scheduler", "--use-checkpoint-opt_param-scheduler"},
        "contradicts optimizer.use_checkpoint_scheduler"}});
}

TEST(ValidateOptimizer, EachLengthHasOneForm) {
  refuses({{{"--lr-warmup-iters", "2", "--lr-warmup-samples", "4"}, "say one length in two units"},
           {{"--lr-warmup-samples", "4", "--lr-warmup-fraction", "0.1"}, "say one length in two units"},
           {{"--lr-decay-iters", "8", "--lr-decay-samples", "8"}, "say one length in two units"},
           {{"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "2", "--lr-wsd-decay-samples", "2"},
            "say one length in two units"}});
}

TEST(ValidateOptimizer, LengthsFitIntoEachOther) {
  refuses(
      {{{"--lr-decay-iters", "5", "--lr-warmup-iters", "5"},
        "optimizer.warmup_iterations=5 (--lr-warmup-iters) must be fewer than optimizer.decay_iterations=5"},
       {{"--lr-warmup-samples", "40", "-m", "4"}, "must be fewer than the 40 samples of the decay"},
       {{"--lr-decay-samples", "8", "--lr-warmup-iters", "2", "-m", "4"},
        "must be fewer than optimizer.decay_samples=8"},
       {{"--lr-decay-style", "wsd", "--lr-wsd-decay-iters", "11"}, "must not exceed train.iterations=10"},
       {{"--lr-decay-style", "WSD", "--lr-wsd-decay-samples", "11"}, "must not exceed train.iterations=10"},
       {{"--lr-decay-style", "WSD"}, "needs the length of its last part"},
       {{"--lr-wsd-decay-iters", "2"}, "has a meaning with optimizer.decay=WSD alone"}});
  EXPECT_TRUE(check({"--lr-warmup-samples", "39", "-m", "4"}).ok());
  EXPECT_TRUE(check({"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "10"}).ok());
}

TEST(ValidateOptimizer, WeightDecayGrowsBetweenGivenEnds) {
  refuses(
      {{{"--start-weight-decay", "0.1"}, "has no meaning when the weight decay is constant"},
       {{"--weight-decay-incr-style", "linear", "--end-weight-decay", "0.1"},
        "optimizer.start_weight_decay=-1 (default) is needed by weight_decay_incr=linear"},
       {{"--weight-decay-incr-style", "cosine", "--start-weight-decay", "0.2", "--end-weight-decay", "0.1"},
        "is below optimizer.start_weight_decay=0.2"}});
  EXPECT_TRUE(check({"--weight-decay-incr-style", "cosine", "--start-weight-decay", "0.1",
                     "--end-weight-decay", "0.1"})
                  .ok());
}

TEST(ValidateOptimizer, ShardingIsTheGroundOfTheRest) {
  refuses({{{"--overlap-param-gather", "--overlap-grad-reduce"},
            "optimizer.overlap_param_gather=true (--overlap-param-gather) needs optimizer.distributed — add "
            "--use-distributed-optimizer"},
           {{"--overlap-param-gather", "--use-distributed-optimizer"}, "needs optimizer.overlap_grad_reduce"},
           {{"--ddp-pad-buckets-for-high-nccl-busbw"}, "needs optimizer.distributed"},
           {{"--optimizer-cpu-offload"}, "needs optimizer.distributed"},
           {{"--use-precision-aware-optimizer"}, "needs optimizer.distributed"}});
  EXPECT_TRUE(check({"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"}).ok());
  EXPECT_TRUE(check({"--overlap-grad-reduce"}).ok());
}

TEST(ValidateOptimizer, ALossScaleNeedsAnOptimizerThatHasOne) {
  refuses({{{"--loss-scale", "8"}, "the optimizer of fp32 parameters has no loss scale"}});
  EXPECT_TRUE(check({"--loss-scale", "8", "--bf16"}).ok());
  EXPECT_TRUE(check({"--loss-scale", "8", "--use-distributed-optimizer"}).ok());
}

TEST(ValidateOptimizer, PostValidationKeepsItsStatesAtHand) {
  refuses({{{"--optimizer-post-validation", "--use-distributed-optimizer", "--optimizer-cpu-offload"},
            "takes snapshots of states that cpu_offload keeps elsewhere"}});
  EXPECT_TRUE(check({"--optimizer-post-validation", "--use-distributed-optimizer"}).ok());
}

TEST(ValidateOptimizer, NarrowStatesNeedThePrecisionAwareOptimizer) {
  const Flags aware{"--use-distributed-optimizer", "--use-precision-aware-optimizer"};
  const auto with = [&](Flags more) {
    more.insert(more.begin(), aware.begin(), aware.end());
    return more;
  };
  refuses({{{"--main-params-dtype", "fp16"}, "optimizer.main_params=fp16 (--main-params-dtype) needs"},
           {{"--exp-avg-dtype", "bf16"}, "needs optimizer.precision_aware"},
           {{"--exp-avg-sq-dtype", "fp16"}, "needs optimizer.precision_aware"},
           {with({"--optimizer", "sgd"}), "is for adam, not for sgd"},
           {with({"--main-params-dtype", "bf16"}), "must be fp32 or fp16"},
           {with({"--main-params-dtype", "fp16", "--fp16"}), "must be fp32 when the model is fp16"}});
  EXPECT_TRUE(check(with({"--main-params-dtype", "fp16", "--exp-avg-dtype", "bf16", "--bf16"})).ok());
}

TEST(ValidateOptimizer, ADynamicScaleTurnsTheNanCheckOff) {
  const Validation result = check({"--fp16", "--check-for-nan-in-loss-and-grad"});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result.config.optimizer.check_for_nan);
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_TRUE(check({"--bf16", "--check-for-nan-in-loss-and-grad"}).config.optimizer.check_for_nan);
  EXPECT_FALSE(check({"--bf16", "--no-check-for-nan-in-loss-and-grad"}).config.optimizer.check_for_nan);
}

TEST(ValidateBatch, SamplesBecomeIterations) {
  const Validation result = check({"--train-samples", "103", "-m", "2", "--dp", "5"});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.config.train.iterations, 10);
  EXPECT_EQ(result.config.train.samples, 103);
  refuses({{{"--train-samples", "103", "-m", "2", "--dp", "5", "--train-iters", "11"},
            "means 10 steps, but train.iterations=11"},
           {{"--train-samples", "3", "-m", "4"}, "is less than the batch of one step"}});
}

TEST(ValidateBatch, ARampUpKeepsItsEnd) {
  const Validation result = check({"--rampup-batch-size", "4", "4", "24", "--global-batch-size", "16", "--dp",
                                   "2", "--train-samples", "200"});
  ASSERT_TRUE(result.ok()) << result.errors.front().text();
  EXPECT_EQ(result.config.schedule.global_batch_size, 16);
  EXPECT_EQ(result.config.schedule.microbatches, 8);
  // 4+4, 8+8 samples, then 12, 12, ... until 24 samples are behind it: two steps of 4, two of 8, then 16.
  const auto batches = num_microbatches_of(result.config);
  ASSERT_TRUE(batches);
  const auto plan = batches->plan(0, result.config.train.iterations);
  ASSERT_TRUE(plan);
  EXPECT_GT(plan->size(), 2u);
  EXPECT_EQ(plan->front().second.num_microbatches, 2);
  EXPECT_EQ(plan->back().second.num_microbatches, 8);
  refuses({{{"--rampup-batch-size", "4,5,24", "--global-batch-size", "16"}, "schedule.rampup=4,5,24"},
           {{"--rampup-batch-size", "3,1,24", "--global-batch-size", "16", "--dp", "2"}, "cannot be run"}});
  EXPECT_TRUE(check({"--rampup-batch-size", "3,1,24", "--global-batch-size", "16", "--dp", "2",
                     "--decrease-batch-size-if-needed"})
                  .ok());
}

TEST(ValidateBatch, StepsSayAllBatches) {
  const Validation result = check({"--step-batch-size-schedule", "0:4 16:8", "--train-iters", "6"});
  ASSERT_TRUE(result.ok()) << result.errors.front().text();
  EXPECT_EQ(result.config.schedule.microbatches, 8);
  refuses({{{"--step-batch-size-schedule", "4:4"}, "must begin with threshold 0"},
           {{"--step-batch-size-schedule", "0:4 x:8"}, "schedule.batch_steps=0:4 x:8"},
           {{"--step-batch-size-schedule", "0:4", "--global-batch-size", "4"},
            "contradicts schedule.batch_steps"},
           {{"--step-batch-size-schedule", "0:4", "--rampup-batch-size", "1,1,8"},
            "both say how the batch grows"},
           {{"--step-batch-size-schedule", "0:4", "--decrease-batch-size-if-needed"}, "does not go with"},
           {{"--step-batch-size-schedule", "0:4 8:8", "-m", "4"}, "ends with 8 in this run"},
           {{"--step-batch-size-schedule", "0:4 8:8", "--schedule", "csv", "--schedule-csv", "x.csv"},
            "which has one number of microbatches"}});
}

TEST(ValidateBatch, EveryNumberOfMicrobatchesMustSuitTheSchedule) {
  refuses(
      {{{"--schedule", "interleaved", "--pp", "4", "--vp", "2", "--step-batch-size-schedule",
         "0:4 16:6 28:8"},
        "leaves a last group of 2, fewer than parallel.pp=4, after groups of schedule.group_size=4, and step "
        "5 "
        "of the run has 6"},
       {{"--schedule", "interleaved", "--pp", "4", "--vp", "2", "--rampup-batch-size", "2,2,8",
         "--global-batch-size", "8"},
        "must be at least parallel.pp=4 in an interleaved schedule, and step 1 of the run has 2"},
       {{"--schedule", "interleaved-2022", "--pp", "4", "--vp", "2", "--step-batch-size-schedule", "0:4 8:6"},
        "is not a multiple of parallel.pp=4 (interleaved-2022), and step 3"}},
      Purpose::kCheck);
  EXPECT_TRUE(
      check({"--schedule", "interleaved", "--pp", "4", "--vp", "2", "--step-batch-size-schedule", "0:4 16:8"},
            Purpose::kCheck)
          .ok());
}

TEST(ValidateBatch, DecreaseRoundsDown) {
  const Validation result = check({"--global-batch-size", "25", "--micro-batch-size", "2", "--dp", "3",
                                   "--decrease-batch-size-if-needed"});
  ASSERT_TRUE(result.ok()) << result.errors.front().text();
  EXPECT_EQ(result.config.schedule.microbatches, 4);
  refuses({{{"--global-batch-size", "5", "--micro-batch-size", "2", "--dp", "3",
             "--decrease-batch-size-if-needed"},
            "is not a multiple of"}});
}

// A record keeps the validated configuration as TOML: it must validate to itself.
TEST(ValidateBatch, AValidatedConfigurationIsValid) {
  for (const Flags& flags : std::vector<Flags>{
           {"--rampup-batch-size", "4", "4", "24", "--global-batch-size", "16", "--train-samples", "200"},
           {"--step-batch-size-schedule", "0:4 16:8", "--train-iters", "6"},
           {"--train-samples", "103", "-m", "2", "--dp", "5"},
           {"--global-batch-size", "25", "--dp", "3", "--decrease-batch-size-if-needed"}}) {
    const Validation once = check(flags);
    ASSERT_TRUE(once.ok());
    const TemporaryFile file(config_toml(once.config));
    const Validation twice = check({file.path()});
    ASSERT_TRUE(twice.ok()) << twice.errors.front().text();
    EXPECT_EQ(config_toml(twice.config), config_toml(once.config));
  }
}

}  // namespace
}  // namespace plumbline
