// Public reports about skipped steps, learning-rate schedules and zeroing: L19, L21, L22, L23, L28.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/config/num_microbatches.h"
#include "engine/optim/param_scheduler.h"
#include "engine/optim/settings.h"
#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

OptimizerParamScheduler scheduler_of(double init, double max, std::int64_t warmup,
                                     std::vector<ParamGroup*> groups) {
  ParamSchedulerOptions options;
  options.init_lr = init;
  options.max_lr = max;
  options.lr_warmup_steps = warmup;
  options.lr_decay_steps = 1000;
  options.start_wd = options.end_wd = 0.0;
  auto scheduler = OptimizerParamScheduler::create(options);
  EXPECT_TRUE(scheduler) << (scheduler ? "" : scheduler.error().text());
  const Status attached = scheduler->attach(std::move(groups));
  EXPECT_TRUE(attached) << (attached ? "" : attached.error().text());
  return std::move(*scheduler);
}

// L19: successful step n has the rate 0.1 * n; overflows at iterations 1 and 3 of 5.
std::vector<double> rates_applied(bool advance_always, std::int64_t* count) {
  HalfRank rank(value_of(LossScaler::constant(4.0)), plain_options());
  // 0.1 at the first update, 0.1 more with each: a warm-up from 0.1 to 1.1 in ten steps.
  OptimizerParamScheduler scheduler = scheduler_of(0.1, 1.1, 10, rank.optimizer->param_groups());
  std::vector<double> applied;
  for (int iteration = 1; iteration <= 5; ++iteration) {
    rank.clear();
    rank.backward({iteration == 1 || iteration == 3 ? kInf : 1.0f});
    const double before = rank.main();
    const bool success = value_of(rank.optimizer->step()).success;
    if (success) applied.push_back(before - rank.main());
    if (success || advance_always) scheduler.step(1);
  }
  *count = scheduler.num_steps();
  return applied;
}

void expect_rates(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

TEST(FamilyL, HuggingfaceTransformers11144SkippedStepsDoNotAdvanceTheSchedule) {
  std::int64_t count = 0;
  expect_rates(rates_applied(false, &count), {0.1, 0.2, 0.3});
  EXPECT_EQ(count, 3);
}

TEST(FamilyL, HuggingfaceTransformers11144AdvancingAlwaysTakesLaterRates) {
  std::int64_t count = 0;
  expect_rates(rates_applied(true, &count), {0.2, 0.4, 0.5});
  EXPECT_EQ(count, 5);
}

// L21: iterations become the samples they really consume.
TEST(FamilyL, NVIDIANeMoMegatronBridge2609LengthsFollowTheRampUp) {
  RunConfig config;
  config.train.iterations = 100;
  config.train.micro_batch_size = 1;
  config.schedule.microbatches = 16;
  config.schedule.rampup = {8, 8, 160};
  config.optimizer.warmup_iterations = 10;
  const auto settings = SchedulerSettings::of(config);
  ASSERT_TRUE(settings) << settings.error().text();
  EXPECT_EQ(settings->lr_decay_steps, 1440);
  EXPECT_EQ(settings->lr_warmup_steps, 80);
  // The fault, iterations times the final batch: 1600 and 160. A warm-up of 160 samples lasts 20 iterations.
  config.schedule.rampup.clear();
  const auto wrong = SchedulerSettings::of(config);
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->lr_decay_steps, 1600);
  EXPECT_EQ(wrong->lr_warmup_steps, 160);
  const auto ramp = NumMicrobatches::ramp_up(16, {8, 8, 160}, {1, 1}, false);
  ASSERT_TRUE(ramp);
  EXPECT_EQ(*ramp->iterations_for(160), 20);
  EXPECT_EQ(*ramp->iterations_for(80), 10);
  const auto plan = ramp->plan(0, 100);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->size(), 2u);
  EXPECT_EQ((*plan)[1].first, 20);  // 20 steps of 8, then 80 of 16
}

// L22: linear warm-up over four steps to 0.4; the scheduler starts at 0 (A) or is advanced once at the beginning (B).
struct Warmup {
  std::vector<double> rates;
  double p = 0.0;
  StateDict saved;  // of the scheduler after three iterations
};

Warmup warm_up(bool advance_first) {
  const ParameterPtr p = parameter("p", floats({0.0f}));
  const auto optimizer = value_of(FP32Optimizer::create(sgd({p}), plain_options()));
  OptimizerParamScheduler scheduler = scheduler_of(0.0, 0.4, 4, optimizer->param_groups());
  if (advance_first) scheduler.step(1);
  Warmup out;
  for (int iteration = 1; iteration <= 6; ++iteration) {
    p->main_grad = floats({1.0f});
    out.rates.push_back(optimizer->param_groups().front()->lr);
    EXPECT_TRUE(value_of(optimizer->step()).success);
    scheduler.step(1);
    if (iteration == 3) out.saved = scheduler.state_dict();
  }
  out.p = values_of(p->value).front();
  return out;
}

TEST(FamilyL, NVIDIANeMoMegatronBridge5399BothConventionsAreConsistent) {
  const Warmup a = warm_up(false), b = warm_up(true);
  expect_rates(a.rates, {0.0, 0.1, 0.2, 0.3, 0.4, 0.4});
  expect_rates(b.rates, {0.1, 0.2, 0.3, 0.4, 0.4, 0.4});
  EXPECT_NEAR(a.p, -1.4, 1e-6);
  EXPECT_NEAR(b.p, -1.8, 1e-6);
}

// Resuming A's state goes on with A's rates; taking it over into B (one step more) skips a rate.
TEST(FamilyL, NVIDIANeMoMegatronBridge5399MixingThemOnResumeChangesTheRates) {
  const Warmup a = warm_up(false);
  for (const bool mixed : {false, true}) {
    const ParameterPtr p = parameter("p", floats({0.0f}));
    const auto optimizer = value_of(FP32Optimizer::create(sgd({p}), plain_options()));
    OptimizerParamScheduler scheduler = scheduler_of(0.0, 0.4, 4, optimizer->param_groups());
    const Status loaded = scheduler.load_state_dict(a.saved);
    ASSERT_TRUE(loaded) << loaded.error().text();
    if (mixed) scheduler.step(1);
    std::vector<double> rates;
    for (int iteration = 4; iteration <= 6; ++iteration) {
      rates.push_back(optimizer->param_groups().front()->lr);
      scheduler.step(1);
    }
    if (mixed) {
      EXPECT_NE(rates.front(), a.rates[3]);
      expect_rates(rates, {0.4, 0.4, 0.4});
    } else {
      EXPECT_EQ(rates, std::vector<double>(a.rates.begin() + 3, a.rates.end()));
    }
  }
}

// L23: bf16 with a constant scale of 1, an inf in each of five iterations.
TEST(FamilyL, DeepspeedaiDeepSpeed8415CheckedBf16SkipsEveryOverflow) {
  HalfRank rank(value_of(LossScaler::constant(1.0)), plain_options(), {1.0f}, at::kBFloat16);
  OptimizerParamScheduler scheduler = scheduler_of(0.0, 0.4, 4, rank.optimizer->param_groups());
  int skipped = 0, applied = 0;
  for (int iteration = 1; iteration <= 5; ++iteration) {
    rank.clear();
    rank.backward({kInf});
    const StepOutcome outcome = value_of(rank.optimizer->step());
    EXPECT_TRUE(outcome.found_inf);
    if (outcome.success) scheduler.step(1);
    ++(outcome.success ? applied : skipped);
    EXPECT_EQ(rank.scaler().scale(), 1.0f);
  }
  EXPECT_EQ(skipped, 5);
  EXPECT_EQ(applied, 0);
  EXPECT_EQ(rank.main(), 1.0);
  EXPECT_EQ(values_of(rank.model->value).front(), 1.0);
  EXPECT_EQ(scheduler.num_steps(), 0);
}

// The fault: bf16 without a scaler looks for nothing, and the inf goes into the weight.
TEST(FamilyL, DeepspeedaiDeepSpeed8415UncheckedBf16TakesTheInf) {
  HalfRank rank(LossScaler{}, plain_options(), {1.0f}, at::kBFloat16);
  rank.model->main_grad.fill_(kInf);
  EXPECT_TRUE(value_of(rank.optimizer->step()).success);
  EXPECT_FALSE(std::isfinite(rank.main()));
}

// L28: an accumulating buffer; gradient inf in step 1, then 1.
struct Zeroing {
  double scale = 0.0;
  int applied = 0;
  double p = 0.0;
};

Zeroing run_zeroing(bool zero_after_skip) {
  LossScaler::Dynamic options;
  options.initial = 1024.0;
  options.rule = ScalerRule::kTorch;
  HalfRank rank(dynamic_scaler(options), plain_options());
  Zeroing out;
  for (int step = 1; step <= 4; ++step) {
    rank.backward({step == 1 ? kInf : 1.0f});
    const bool success = value_of(rank.optimizer->step()).success;
    out.applied += success ? 1 : 0;
    if (success || zero_after_skip) rank.clear();
    out.scale = static_cast<double>(rank.scaler().scale());
    rank.optimizer->zero_grad();  // forgets the recorded scale; the buffer is the wrapper's
  }
  out.p = rank.main();
  return out;
}

TEST(FamilyL, PaddlePaddlePaddle67895GradientsAreZeroedAfterASkip) {
  const Zeroing zeroed = run_zeroing(true);
  EXPECT_EQ(zeroed.scale, 512.0);
  EXPECT_EQ(zeroed.applied, 3);
  EXPECT_EQ(zeroed.p, -3.0);
}

TEST(FamilyL, PaddlePaddlePaddle67895NotZeroedTheInfStays) {
  const Zeroing kept = run_zeroing(false);
  EXPECT_EQ(kept.scale, 64.0);
  EXPECT_EQ(kept.applied, 0);
  EXPECT_EQ(kept.p, 0.0);
}

TEST(FamilyL, PaddlePaddlePaddle67895ZeroingIsNoMultiplication) {
  const ParameterPtr one = parameter("w", floats({0.0f, 0.0f}));
  one->grad = floats({kInf, std::nanf("")});
  EXPECT_TRUE(std::isnan(values_of(one->grad * 0.0).front()));
  zero_grad_group_helper({one}, false);
  EXPECT_EQ(values_of(one->grad), (std::vector<double>{0.0, 0.0}));
  EXPECT_FALSE(std::signbit(values_of(one->grad).front()));
}

}  // namespace
}  // namespace plumbline::test
