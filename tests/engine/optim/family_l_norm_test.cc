// Public reports about the gradient norm and clipping: L01, L02, L03, L06.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/optim/tensor_ops.h"
#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

struct Rank {
  double norm = 0.0;
  std::vector<double> used;  // gradients the update was made from
};

// One step of one rank: a parameter of one element for each gradient.
Rank step(const std::vector<float>& gradients, double clip, std::shared_ptr<Collective> group) {
  std::vector<ParameterPtr> params;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    params.push_back(parameter("w" + std::to_string(i), floats({0.0f})));
    params.back()->main_grad = floats({gradients[i]});
  }
  MegatronOptimizerOptions options = plain_options(clip);
  options.grad_stats = std::move(group);
  const auto optimizer = value_of(FP32Optimizer::create(sgd(params), options));
  const StepOutcome outcome = value_of(optimizer->step());
  EXPECT_TRUE(outcome.success);
  Rank rank{outcome.grad_norm.value_or(-1.0), {}};
  for (const ParameterPtr& one : params) rank.used.push_back(-values_of(one->value).front());
  return rank;
}

// Megatron's coefficient has 1e-6 in its denominator, the reports' has not.
constexpr double kEpsilon = 1e-6;

// L01: pp = 2, stage gradients 3 and 4, clip 1.
TEST(FamilyL, PytorchTorchtitan596OneCoefficientForAllStages) {
  std::array<Rank, 2> ranks;
  on_ranks(2, [&](int rank, std::shared_ptr<Collective> group) {
    ranks[static_cast<std::size_t>(rank)] = step({rank == 0 ? 3.0f : 4.0f}, 1.0, group);
  });
  EXPECT_EQ(ranks[0].norm, 5.0);
  EXPECT_EQ(ranks[1].norm, 5.0);
  EXPECT_NEAR(ranks[0].used[0], 0.6, kEpsilon);
  EXPECT_NEAR(ranks[1].used[0], 0.8, kEpsilon);
  EXPECT_NEAR(clip_coefficient(5.0, 1.0), 0.2, kEpsilon);
}

// The fault: each stage clips by its own norm. Both gradients become 1, and the coefficients differ between ranks.
TEST(FamilyL, PytorchTorchtitan596LocalNormsGiveDifferentCoefficients) {
  const Rank first = step({3.0f}, 1.0, nullptr), second = step({4.0f}, 1.0, nullptr);
  EXPECT_NE(first.norm, second.norm);
  EXPECT_NEAR(first.used[0], 1.0, kEpsilon);
  EXPECT_NEAR(second.used[0], 1.0, kEpsilon);
  EXPECT_NEAR(clip_coefficient(first.norm, 1.0), 1.0 / 3.0, kEpsilon);
  EXPECT_NEAR(clip_coefficient(second.norm, 1.0), 1.0 / 4.0, kEpsilon);
}

// L02: the norm must not depend on how parameters are spread over ranks.
TEST(FamilyL, DeepspeedaiDeepSpeed8475NormDoesNotDependOnTheLayout) {
  for (const bool spread : {true, false}) {
    std::array<Rank, 2> ranks;
    on_ranks(2, [&](int rank, std::shared_ptr<Collective> group) {
      std::vector<float> own = spread ? std::vector<float>{rank == 0 ? 3.0f : 4.0f} : std::vector<float>{};
      if (!spread && rank == 0) own = {3.0f, 4.0f};
      ranks[static_cast<std::size_t>(rank)] = step(own, 2.5, group);
    });
    EXPECT_EQ(ranks[0].norm, 5.0) << spread;
    EXPECT_EQ(ranks[1].norm, 5.0) << spread;
    EXPECT_NEAR(ranks[0].used[0], 1.5, kEpsilon) << spread;
  }
  EXPECT_NEAR(clip_coefficient(5.0, 2.5), 0.5, kEpsilon);
  // The fault: the arithmetic mean of local norms.
  EXPECT_NEAR(clip_coefficient((3.0 + 4.0) / 2.0, 2.5), 0.714, 5e-4);
  EXPECT_NEAR(clip_coefficient((5.0 + 0.0) / 2.0, 2.5), 1.0, kEpsilon);
}

// L03: tp = 8, sharded parameters of squared norm 9 in all, replicated ones of 16.
double tensor_parallel_norm(int tp, bool once) {
  std::vector<double> norms(static_cast<std::size_t>(tp));
  on_ranks(tp, [&](int rank, std::shared_ptr<Collective> group) {
    // Nine ones, the first rank has what is left.
    const int ones = 9 / tp + (rank < 9 % tp ? 1 : 0);
    const ParameterPtr sharded = parameter("sharded", at::zeros({ones}));
    sharded->tensor_parallel = true;
    sharded->main_grad = at::ones({ones});
    const ParameterPtr replicated = parameter("replicated", at::zeros({1}));
    replicated->main_grad = floats({4.0f});
    MegatronOptimizerOptions options = plain_options(1.0);
    options.grad_stats = std::move(group);
    options.tp_rank = once ? rank : 0;  // the fault: every rank believes that it is the one to count
    const auto optimizer = value_of(FP32Optimizer::create(sgd({sharded, replicated}), options));
    norms[static_cast<std::size_t>(rank)] = value_of(optimizer->step()).grad_norm.value_or(-1.0);
    const double factor = static_cast<double>(clip_coefficient(norms[static_cast<std::size_t>(rank)], 1.0));
    EXPECT_NEAR(values_of(replicated->value)[0], -4.0 * factor, 1e-6);
  });
  for (const double norm : norms) EXPECT_EQ(norm, norms[0]);
  return norms[0];
}

TEST(FamilyL, ROCmTransformerEngine715ReplicatedParametersCountOnce) {
  for (const int tp : {1, 2, 3, 8}) EXPECT_EQ(tensor_parallel_norm(tp, true), 5.0) << tp;
  EXPECT_NEAR(clip_coefficient(5.0, 1.0), 0.2, kEpsilon);
}

TEST(FamilyL, ROCmTransformerEngine715CountedOnEveryRankTheNormGrowsWithTp) {
  EXPECT_EQ(tensor_parallel_norm(1, false), 5.0);
  const double wrong = tensor_parallel_norm(8, false);
  EXPECT_DOUBLE_EQ(wrong, std::sqrt(9.0 + 8.0 * 16.0));
  EXPECT_NEAR(wrong, 11.7047, 5e-5);
  EXPECT_NEAR(clip_coefficient(wrong, 1.0), 0.0854, 5e-5);
}

// L06: unscale, then clip.
TEST(FamilyL, LightningAIPytorchLightning9599UnscaleBeforeClipping) {
  HalfRank a(value_of(LossScaler::constant(1024.0)), plain_options(1.0), {0.0f, 0.0f});
  a.backward({1.2f, 1.6f});
  EXPECT_EQ(values_of(a.model->main_grad)[0], static_cast<double>(1.2f) * 1024.0);
  const StepOutcome outcome = value_of(a.optimizer->step());
  EXPECT_NEAR(*outcome.grad_norm, 2.0, kEpsilon);
  const std::vector<double> main = values_of(a.optimizer->get_parameters().front()->value);
  EXPECT_NEAR(main[0], -0.6, kEpsilon);
  EXPECT_NEAR(main[1], -0.8, kEpsilon);
  EXPECT_NEAR(std::hypot(main[0], main[1]), 1.0, kEpsilon);
}

// The fault: clipping sees the scaled gradients. The norm it reports is the scale times too large.
TEST(FamilyL, LightningAIPytorchLightning9599ClippingFirstShrinksByTheScale) {
  HalfRank b(value_of(LossScaler::constant(1024.0)), plain_options(1.0), {0.0f, 0.0f});
  b.backward({1.2f, 1.6f});
  b.optimizer->copy_model_grads_to_main_grads();
  EXPECT_NEAR(value_of(b.optimizer->clip_grad_norm(1.0)), 2048.0, 1e-3);
  EXPECT_FALSE(value_of(b.optimizer->unscale_local()));
  EXPECT_NEAR(value_of(b.optimizer->get_grad_norm()), 9.765625e-4, 1e-9);
}

}  // namespace
}  // namespace plumbline::test
