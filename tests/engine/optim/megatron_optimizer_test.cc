// What all classes share: which gradients count, norms of any order, zero counts, zeroing, options.
#include "engine/optim/megatron_optimizer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/optim/optimizer_support.h"

namespace plumbline::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One parameter of every kind: plain, tensor-parallel, shared, expert, expert tensor-parallel, without
// gradient. The gradient of each is one number that is a power of ten, so a sum tells which ones were in
// it.
struct Kinds {
  std::vector<ParameterPtr> params;
  std::unique_ptr<FP32Optimizer> optimizer;

  explicit Kinds(MegatronOptimizerOptions options) {
    for (const char* name : {"plain", "tp", "shared", "expert", "expert_tp", "without"}) {
      params.push_back(parameter(name, {1}));
    }
    params[1]->tensor_parallel = params[4]->tensor_parallel = true;
    params[2]->shared = true;
    params[3]->expert = params[4]->expert = true;
    for (std::size_t i = 0; i < 5; ++i)
      params[i]->grad = filled(params[i], std::pow(10.0, static_cast<double>(i)));
    options.norm_type = 1.0;
    optimizer = must(FP32Optimizer::create(adam({group_of(params)}), options));
  }
};

TEST(MegatronOptimizer, WhichGradientsCount) {
  struct Case {
    int tp_rank, expert_tp_rank;
    double sum;
  };
  for (const Case& c : {Case{0, 0, 11011.0}, Case{1, 0, 11010.0}, Case{0, 1, 10011.0}, Case{1, 1, 10010.0}}) {
    MegatronOptimizerOptions options;
    options.tp_rank = c.tp_rank;
    options.expert_tp_rank = c.expert_tp_rank;
    Kinds kinds(options);
    EXPECT_EQ(must(kinds.optimizer->get_grad_norm()), c.sum) << c.tp_rank << c.expert_tp_rank;
    EXPECT_EQ(kinds.optimizer->main_gradients().size(), 5u);
    for (const ParameterPtr& p : kinds.params) {
      if (p->grad.defined()) p->grad.zero_();
    }
    EXPECT_EQ(must(kinds.optimizer->count_zeros()),
              static_cast<std::int64_t>(kinds.optimizer->get_main_grads_for_grad_norm().size()));
  }
}

// Unscaling, checking and the norm in one pass are what they are one after the other.
TEST(MegatronOptimizer, NormInThePassOfUnscaling) {
  for (const double p : {2.0, 3.0, kInfinity}) {
    for (const float bad : {1.0f, std::numeric_limits<float>::infinity()}) {
      const auto make = [&](std::vector<ParameterPtr>& models) {
        MegatronOptimizerOptions options;
        options.norm_type = p;
        options.tp_rank = 1;
        for (const char* name : {"counted", "duplicate", "shared", "without"}) {
          models.push_back(parameter(name, {20}, at::kHalf));
          models.back()->tensor_parallel = models.size() != 2;
          models.back()->shared = models.size() == 3;
          if (models.size() < 4) models.back()->main_grad = random_tensor({20}, name, 64.0);
        }
        models[1]->main_grad[7] = bad;
        std::vector<std::unique_ptr<MegatronOptimizer>> members;
        members.push_back(must(Float16OptimizerWithFloat16Params::create(
            adam({group_of({models[0], models[1]})}), options, dynamic_scaler(64.0))));
        members.push_back(must(Float16OptimizerWithFloat16Params::create(
            adam({group_of({models[2], models[3]})}), options, dynamic_scaler(64.0))));
        return must(ChainedOptimizer::create(options, std::move(members)));
      };
      std::vector<ParameterPtr> one, two;
      const auto apart = make(one), together = make(two);
      apart->copy_model_grads_to_main_grads();
      together->copy_model_grads_to_main_grads();
      LocalNorm norm;
      const bool found = must(together->unscale_local_with_norm(norm));
      EXPECT_EQ(must(apart->unscale_local()), found);
      EXPECT_EQ(found, std::isinf(bad));
      EXPECT_EQ(norm_of(apart->norm_local()), norm_of(norm)) << "p = " << p;  // the inf is in a duplicate
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(one[i]->main_grad, two[i]->main_grad));
    }
  }
}

TEST(MegatronOptimizer, ClippingScalesWhatIsNotInTheNormToo) {
  Kinds kinds({});
  EXPECT_EQ(must(kinds.optimizer->clip_grad_norm(1.1011)), 11011.0);
  const float factor = clip_coefficient(11011.0, 1.1011);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(kinds.params[i]->grad.item<float>(),
              static_cast<float>(std::pow(10.0, static_cast<double>(i))) * factor);
  }
}

TEST(MegatronOptimizer, NormsOfAnyOrder) {
  for (const double p : {0.5, 1.0, 2.0, 3.0, kInfinity}) {
    MegatronOptimizerOptions options;
    options.norm_type = p;
    const ParameterPtr a = parameter("a", {3, 5}), b = parameter("b", {7}), none = parameter("none", {2});
    const auto optimizer = must(FP32Optimizer::create(adam({group_of({a, b, none})}), options));
    EXPECT_EQ(must(optimizer->get_grad_norm()), 0.0);  // no gradient at all
    a->grad = random_tensor({3, 5}, "ga");
    b->grad = random_tensor({7}, "gb");
    const at::Tensor all = at::cat({a->grad.flatten(), b->grad}).to(at::kDouble).abs();
    const double expected =
        std::isinf(p) ? all.max().item<double>() : std::pow(all.pow(p).sum().item<double>(), 1.0 / p);
    EXPECT_NEAR(must(optimizer->get_grad_norm()), expected, 1e-12 * expected) << "p = " << p;
    b->grad[3] = std::nanf("");
    EXPECT_TRUE(std::isnan(must(optimizer->get_grad_norm()))) << "p = " << p;
    // A NaN norm clips nothing; it never multiplies gradients by NaN.
    const at::Tensor before = a->grad.clone();
    must(optimizer->clip_grad_norm(0.1));
    EXPECT_TRUE(same_bits(a->grad, before));
  }
  const auto empty = must(FP32Optimizer::create(adam({group_of({})}), {}));
  EXPECT_EQ(must(empty->get_grad_norm()), 0.0);
  EXPECT_TRUE(must(empty->step()).success);
}

TEST(MegatronOptimizer, ZerosOfBothSigns) {
  const ParameterPtr a = parameter("a", {6});
  MegatronOptimizerOptions options;
  options.log_num_zeros = true;
  const auto optimizer = must(FP32Optimizer::create(adam({group_of({a})}), options));
  const float tiny = std::numeric_limits<float>::denorm_min();
  a->grad = at::tensor({0.0f, -0.0f, 1.0f, tiny, 0.0f, std::nanf("")});
  EXPECT_EQ(must(optimizer->count_zeros()), 3);
  EXPECT_EQ(*must(optimizer->step()).num_zeros, 3);
}

TEST(MegatronOptimizer, ZeroGradGroupHelper) {
  for (const bool decoupled : {false, true}) {
    const ParameterPtr a = parameter("a", {2}), b = parameter("b", {2});
    const float inf = std::numeric_limits<float>::infinity();
    a->grad = at::tensor({inf, 1.0f});
    a->decoupled_grad = at::tensor({std::nanf(""), 1.0f});
    at::Tensor& chosen = decoupled ? a->decoupled_grad : a->grad;
    at::Tensor& other = decoupled ? a->grad : a->decoupled_grad;
    zero_grad_group_helper({a, b}, false, decoupled);
    EXPECT_TRUE(same_bits(chosen, at::zeros({2})));  // not inf * 0
    EXPECT_FALSE(b->grad.defined());
    EXPECT_FALSE(std::isfinite(other[0].item<float>()));
    // A gradient that has a history is detached from it.
    const at::Tensor leaf = at::ones({2}).requires_grad_(true);
    chosen = leaf * 2.0;
    ASSERT_NE(chosen.grad_fn(), nullptr);
    zero_grad_group_helper({a, b}, false, decoupled);
    EXPECT_EQ(chosen.grad_fn(), nullptr);
    EXPECT_TRUE(same_bits(chosen, at::zeros({2})));
    EXPECT_EQ(leaf[0].item<float>(), 1.0f);
    zero_grad_group_helper({a, b}, true, decoupled);
    EXPECT_FALSE(chosen.defined());
    EXPECT_TRUE(other.defined());
  }
}

TEST(MegatronOptimizer, AddNormKeepsANan) {
  LocalNorm sum, more;
  sum.p = more.p = kInfinity;
  sum.other = 3.0;
  more.other = 2.0;
  add_norm(sum, more);
  EXPECT_EQ(norm_of(sum), 3.0);
  more.other = std::nan("");
  add_norm(sum, more);
  more.other = 5.0;
  add_norm(sum, more);
  EXPECT_TRUE(std::isnan(norm_of(sum)));
}

TEST(MegatronOptimizer, ChecksOptions) {
  const auto refused = [](double clip, double p, double threshold) {
    MegatronOptimizerOptions options;
    options.clip_grad = clip;
    options.norm_type = p;
    options.grad_norm_skip_threshold = threshold;
    return message(check_megatron_options(options));
  };
  EXPECT_EQ(refused(0.0, kInfinity, 0.0), "no error");
  EXPECT_NE(refused(-1.0, 2.0, 0.0).find("clip_grad is -1"), std::string::npos);
  EXPECT_NE(refused(1.0, -2.0, 0.0).find("norm_type is -2"), std::string::npos);
  EXPECT_NE(refused(1.0, std::nan(""), 0.0).find("norm_type is nan"), std::string::npos);
  EXPECT_NE(refused(1.0, 2.0, -1.0).find("grad_norm_skip_threshold is -1"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::test
