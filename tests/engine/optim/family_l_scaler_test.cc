// Public reports about loss scalers and their agreement between ranks: L08, L09, L11, L14, L15, L17, L27.
#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/optim/chained_optimizer.h"
#include "engine/optim/tensor_ops.h"
#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Scale 4, doubled by the updates of steps 2, 3 and 4: a window of 2, and a tracker set forward by hand.
LossScaler doubling() {
  LossScaler::Dynamic options;
  options.initial = 4.0;
  options.window = 2;
  return dynamic_scaler(options);
}

void set_tracker(HalfRank& rank, std::int64_t growth) {
  StateDict state = rank.optimizer->state_dict();
  (*state["grad_scaler"].get<StateDict>())["growth_tracker"] = growth;
  const Status loaded = rank.optimizer->load_state_dict(state);
  EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().text());
}

// L08: the divisor is the scale of the backward, and the scale moves afterwards.
TEST(FamilyL, DeepspeedaiDeepSpeed8588UnscaledByTheScaleOfTheBackward) {
  HalfRank rank(doubling(), plain_options());
  const std::array<double, 4> scales{4.0, 4.0, 8.0, 16.0};
  for (std::size_t step = 0; step < 4; ++step) {
    rank.clear();
    if (step >= 2) set_tracker(rank, 1);
    EXPECT_EQ(rank.scaler().scale(), scales[step]) << step;
    rank.backward({1.0f});
    EXPECT_EQ(values_of(rank.model->main_grad)[0], scales[step]);
    EXPECT_TRUE(value_of(rank.optimizer->step()).success);
    EXPECT_EQ(rank.main(), -static_cast<double>(step + 1)) << "each used gradient is 1";
  }
  EXPECT_EQ(rank.scaler().scale(), 32.0f);
}

// The fault: update first, then unscale with the new value. The optimizer refuses it at the first growth.
TEST(FamilyL, DeepspeedaiDeepSpeed8588ScaleMovedBeforeUnscalingIsRefused) {
  HalfRank rank(doubling(), plain_options());
  std::vector<double> used;
  for (int step = 0; step < 4; ++step) {
    rank.clear();
    if (step >= 2) set_tracker(rank, 1);
    rank.backward({1.0f});
    const double scaled = values_of(rank.model->main_grad)[0];
    rank.optimizer->update_scaler(false);
    used.push_back(scaled * static_cast<double>(rank.scaler().inverse()));
    rank.optimizer->copy_model_grads_to_main_grads();
    const Result<bool> unscaled = rank.optimizer->unscale_local();
    ASSERT_EQ(unscaled.has_value(), step == 0) << step;
    if (!unscaled)
      EXPECT_NE(unscaled.error().message.find("the scale is"), std::string::npos) << unscaled.error().text();
  }
  EXPECT_EQ(used, (std::vector<double>{1.0, 0.5, 0.5, 0.5}));
}

// L09: DeepSpeed's rule, six overflows in a row and a clean step.
TEST(FamilyL, DeepspeedaiDeepSpeed1599SixOverflowsInARow) {
  LossScaler::Dynamic options;
  options.initial = 65536.0;
  options.hysteresis = 2;
  options.window = 1000;
  options.rule = ScalerRule::kDeepSpeed;
  HalfRank rank(dynamic_scaler(options), plain_options());
  std::vector<double> scales;
  int skipped = 0, applied = 0;
  for (int step = 1; step <= 7; ++step) {
    rank.clear();
    rank.backward({step <= 6 ? kInf : 1.0f});
    const StepOutcome outcome = value_of(rank.optimizer->step());
    EXPECT_EQ(outcome.found_inf, !outcome.success);
    ++(outcome.success ? applied : skipped);
    scales.push_back(rank.scaler().scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{65536, 32768, 16384, 8192, 4096, 2048, 2048}));
  EXPECT_EQ(skipped, 6);
  EXPECT_EQ(applied, 1);
  EXPECT_EQ(rank.main(), -1.0);
}

// L11: six steps, overflow on rank 1 only at steps 3 and 4.
struct Trace {
  std::vector<double> scales;
  std::vector<std::int64_t> hysteresis, growth, steps;
};

Trace trace_of(int rank, std::shared_ptr<Collective> group) {
  LossScaler::Dynamic options;
  options.initial = 65536.0;
  options.window = 2;
  options.hysteresis = 2;
  MegatronOptimizerOptions megatron = plain_options();
  megatron.grad_stats = std::move(group);
  HalfRank one(dynamic_scaler(options), megatron);
  Trace trace;
  std::int64_t applied = 0;
  for (int step = 1; step <= 6; ++step) {
    one.clear();
    one.backward({rank == 1 && (step == 3 || step == 4) ? kInf : 0.5f});
    applied += value_of(one.optimizer->step()).success ? 1 : 0;
    trace.scales.push_back(one.scaler().scale());
    trace.hysteresis.push_back(one.scaler().hysteresis_tracker());
    trace.growth.push_back(one.scaler().growth_tracker());
    trace.steps.push_back(applied);
  }
  return trace;
}

TEST(FamilyL, HpcaitechColossalAI80AgreedOverflowKeepsScalersEqual) {
  std::array<Trace, 2> traces;
  on_ranks(2, [&](int rank, std::shared_ptr<Collective> group) {
    traces[static_cast<std::size_t>(rank)] = trace_of(rank, group);
  });
  for (const Trace& trace : traces) {
    EXPECT_EQ(trace.scales, (std::vector<double>{65536, 131072, 131072, 65536, 65536, 131072}));
    EXPECT_EQ(trace.hysteresis, (std::vector<std::int64_t>{2, 2, 1, 0, 0, 2}));
    EXPECT_EQ(trace.steps, (std::vector<std::int64_t>{1, 2, 2, 2, 3, 4}));
  }
}

TEST(FamilyL, HpcaitechColossalAI80WithoutReductionRanksDivergeAtStep3) {
  const Trace first = trace_of(0, nullptr), second = trace_of(1, nullptr);
  EXPECT_EQ(first.scales.back(), 524288.0);
  EXPECT_EQ(first.steps.back(), 6);
  for (const std::size_t step : {0u, 1u}) {
    EXPECT_EQ(first.scales[step], second.scales[step]);
    EXPECT_EQ(first.growth[step], second.growth[step]);
    EXPECT_EQ(first.steps[step], second.steps[step]);
  }
  EXPECT_EQ(first.steps[2], 3);
  EXPECT_EQ(second.steps[2], 2);
  EXPECT_EQ(first.growth[2], 1);
  EXPECT_EQ(second.growth[2], 0);
  EXPECT_EQ(first.hysteresis[2], 2);
  EXPECT_EQ(second.hysteresis[2], 1);
  EXPECT_EQ(first.scales[2], second.scales[2]);
  EXPECT_EQ(first.scales[3], 262144.0);
  EXPECT_EQ(second.scales[3], 65536.0);
}

// L14: torch's rule on 8 ranks; how an early read happens is in tests/issues/pytorch_115710_test.cc.
TEST(FamilyL, PytorchPytorch115710AllRanksBackOffTogether) {
  LossScaler::Dynamic options;
  options.initial = 2.0;
  options.window = 1'000'000;
  options.rule = ScalerRule::kTorch;
  for (const bool reduced : {true, false}) {
    std::array<double, 8> scales{};
    std::array<int, 8> stepped{};
    on_ranks(8, [&](int rank, std::shared_ptr<Collective> group) {
      MegatronOptimizerOptions megatron = plain_options();
      megatron.grad_stats = reduced ? group : nullptr;  // off: what a rank sees that reads its own flag
      HalfRank one(dynamic_scaler(options), megatron);
      one.backward({rank == 0 ? kInf : 1.0f});
      stepped[static_cast<std::size_t>(rank)] = value_of(one.optimizer->step()).success ? 1 : 0;
      scales[static_cast<std::size_t>(rank)] = one.scaler().scale();
    });
    for (std::size_t rank = 0; rank < 8; ++rank) {
      const bool skips = reduced || rank == 0;
      EXPECT_EQ(scales[rank], skips ? 1.0 : 2.0) << "rank " << rank;
      EXPECT_EQ(stepped[rank], skips ? 0 : 1) << "rank " << rank;
    }
  }
}

// L15: encoder and decoder on a rank each, each its own scaler; the decoder scales the loss, so the encoder's gradient
// comes multiplied with the decoder's scale.
LossScaler eight() {
  LossScaler::Dynamic options;
  options.initial = 8.0;
  options.hysteresis = 1;
  return dynamic_scaler(options);
}

TEST(FamilyL, NVIDIANeMoMegatronBridge5591AgreedFlagKeepsEncoderAndDecoderTogether) {
  std::array<double, 2> scales{}, used{};
  double decoder_scale = 8.0;
  for (int step = 1; step <= 2; ++step) {
    on_ranks(2, [&](int rank, std::shared_ptr<Collective> group) {
      const auto at = static_cast<std::size_t>(rank);
      MegatronOptimizerOptions megatron = plain_options();
      megatron.grad_stats = std::move(group);
      HalfRank one(eight(), megatron);
      if (step == 2) one.optimizer->update_scaler(true);  // as step 1 left it, below
      one.model->main_grad.fill_(step == 1 ? (rank == 0 ? kInf : 1.0f)
                                           : static_cast<float>(3.0 * decoder_scale));
      EXPECT_EQ(value_of(one.optimizer->step()).success, step == 2);
      scales[at] = one.scaler().scale();
      used[at] = -one.main();
    });
    EXPECT_EQ(scales[0], 4.0);
    EXPECT_EQ(scales[1], 4.0);
    decoder_scale = scales[1];
  }
  EXPECT_EQ(used[0], 3.0);
}

TEST(FamilyL, NVIDIANeMoMegatronBridge5591LocalFlagsGiveTheEncoderTwiceItsGradient) {
  HalfRank encoder(eight(), plain_options()), decoder(eight(), plain_options());
  const auto drive = [](HalfRank& rank) {
    rank.optimizer->copy_model_grads_to_main_grads();
    return value_of(rank.optimizer->unscale_local());
  };
  encoder.model->main_grad.fill_(kInf);
  decoder.model->main_grad.fill_(1.0f);
  const bool found_encoder = drive(encoder), found_decoder = drive(decoder);
  EXPECT_TRUE(found_encoder || found_decoder);      // the skip is agreed,
  encoder.optimizer->update_scaler(found_encoder);  // the scalers are not
  decoder.optimizer->update_scaler(found_decoder);
  EXPECT_EQ(encoder.scaler().scale(), 4.0f);
  EXPECT_EQ(decoder.scaler().scale(), 8.0f);
  EXPECT_EQ(encoder.main(), 0.0);
  encoder.clear();
  encoder.model->main_grad.fill_(3.0f * decoder.scaler().scale());
  EXPECT_FALSE(drive(encoder));
  EXPECT_TRUE(encoder.optimizer->finish_step(0.0));
  EXPECT_EQ(encoder.main(), -6.0);

  // A chain with such members is refused.
  std::vector<std::unique_ptr<MegatronOptimizer>> members;
  members.push_back(std::move(encoder.optimizer));
  members.push_back(std::move(decoder.optimizer));
  const auto chain = ChainedOptimizer::create(plain_options(), std::move(members));
  ASSERT_FALSE(chain);
  EXPECT_NE(chain.error().message.find("loss scaler"), std::string::npos) << chain.error().text();
}

// The same two as members of a chain: one flag for both, whoever overflowed.
TEST(FamilyL, NVIDIANeMoMegatronBridge5591AChainHasOneFlag) {
  HalfRank encoder(eight(), plain_options()), decoder(eight(), plain_options());
  std::vector<std::unique_ptr<MegatronOptimizer>> members;
  members.push_back(std::move(encoder.optimizer));
  members.push_back(std::move(decoder.optimizer));
  const auto chain = value_of(ChainedOptimizer::create(plain_options(), std::move(members)));
  encoder.model->main_grad.fill_(1.0f);
  decoder.model->main_grad.fill_(kInf);
  EXPECT_FALSE(value_of(chain->step()).success);
  for (const auto& member : chain->chained_optimizers()) EXPECT_EQ(member->scaler()->scale(), 4.0f);
}

// L17: 120 clean steps, growth at each.
TEST(FamilyL, PytorchPytorch98828UncappedScaleBecomesInfiniteAfterStep112) {
  LossScaler::Dynamic options;
  options.initial = 65536.0;
  options.window = 1;
  options.capped = false;
  LossScaler scaler = dynamic_scaler(options);
  for (int step = 1; step <= 112; ++step) {
    EXPECT_TRUE(std::isfinite(scaler.scale())) << step;
    EXPECT_FALSE(scaler.facts().broken) << step;
    scaler.update(false);
  }
  EXPECT_EQ(scaler.scale(), kInf);
  // Step 113: the skip is the scaler's fault, and is said to be.
  EXPECT_TRUE(scaler.facts().broken);
  HalfRank rank(scaler, plain_options());
  rank.backward({0.5f});
  const StepOutcome outcome = value_of(rank.optimizer->step());
  EXPECT_TRUE(outcome.found_inf);
  EXPECT_TRUE(rank.scaler().facts().broken);
}

TEST(FamilyL, PytorchPytorch98828CappedScaleStaysAtTheLastFiniteValue) {
  for (const ScalerRule rule : {ScalerRule::kMegatron, ScalerRule::kTorch}) {
    LossScaler::Dynamic options;
    options.initial = 65536.0;
    options.window = 1;
    options.rule = rule;
    LossScaler scaler = dynamic_scaler(options);
    for (int step = 1; step <= 120; ++step) {
      scaler.update(false);
      EXPECT_EQ(scaler.scale(), std::ldexp(1.0f, std::min(16 + step, 127))) << step;
    }
    EXPECT_TRUE(scaler.facts().capped);
    EXPECT_FALSE(scaler.facts().broken);
  }
}

// L27: two microbatches in one window, true gradients 1 and 1, sum wanted.
TEST(FamilyL, PytorchPytorch36601OneScaleForAllBackwardsOfAStep) {
  LossScaler::Dynamic options;
  options.initial = 8.0;
  options.hysteresis = 1;
  HalfRank rank(dynamic_scaler(options), plain_options());
  rank.backward({1.0f});
  rank.backward({1.0f});
  EXPECT_EQ(values_of(rank.model->main_grad)[0], 16.0);
  EXPECT_TRUE(value_of(rank.optimizer->step()).success);
  EXPECT_EQ(rank.main(), -2.0);
}

// The fault: an update between the two backwards. The optimizer refuses to unscale.
TEST(FamilyL, PytorchPytorch36601UpdateBetweenBackwardsIsRefused) {
  LossScaler::Dynamic options;
  options.initial = 8.0;
  options.hysteresis = 1;
  HalfRank rank(dynamic_scaler(options), plain_options());
  rank.backward({1.0f});
  rank.optimizer->update_scaler(true);
  rank.backward({1.0f});
  EXPECT_EQ(values_of(rank.model->main_grad)[0] * static_cast<double>(rank.scaler().inverse()), 3.0);
  const Result<StepOutcome> outcome = rank.optimizer->step();
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("multiplied with scale 8, the scale is 4 now"), std::string::npos)
      << outcome.error().text();
  EXPECT_EQ(rank.main(), 0.0);
}

}  // namespace
}  // namespace plumbline::test
