// Chains: one decision, one loss scale, one norm, alone and over ranks.
#include "engine/optim/chained_optimizer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/optim/chain_support.h"

namespace plumbline::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ChainedOptimizer, AllMembersStepByOneNorm) {
  MegatronOptimizerOptions options;
  options.clip_grad = 0.25;
  Chain chain(options);
  // One optimizer over everything does the same.
  const std::vector<ParameterPtr> all = Chain().models();
  const auto one =
      must(Float16OptimizerWithFloat16Params::create(adam({group_of(all)}), options, dynamic_scaler(64.0)));
  for (int step = 0; step < 3; ++step) {
    chain.gradients("g" + std::to_string(step));
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->main_grad = chain.models()[i]->main_grad.clone();
    const StepOutcome outcome = must(chain.optimizer->step()), expected = must(one->step());
    EXPECT_TRUE(outcome.success);
    EXPECT_EQ(outcome.grad_norm, expected.grad_norm);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(same_bits(all[i]->value, chain.models()[i]->value)) << i;
    }
  }
  EXPECT_EQ(chain.optimizer->get_parameters().size(), 3u);
  EXPECT_EQ(chain.optimizer->get_main_grads_for_grad_norm().size(), 3u);
  EXPECT_EQ(chain.optimizer->main_gradients().size(), 3u);
  EXPECT_EQ(chain.optimizer->param_groups().size(), 2u);
  EXPECT_NE(chain.optimizer->find_state(*chain.optimizer->get_parameters()[2]), nullptr);
  EXPECT_FALSE(chain.optimizer->optimizer().has_value());
}

// The hazard of separate scalers: an overflow that one member sees. Upstream's members then
// have scales 8 and 4, and the second one unscales a loss scaled by 8 with 1/4 from then on.
TEST(ChainedOptimizer, ScalersStayEqualWhenOneMemberOverflows) {
  for (const std::size_t member : {0u, 1u}) {
    Chain chain({}, {}, dynamic_scaler(8.0));
    chain.gradients("g");
    (member == 0 ? chain.dense : chain.experts)[0]->main_grad.view({-1})[1] = kInf;
    const StateValue before = chain.snap();
    const StepOutcome outcome = must(chain.optimizer->step());
    EXPECT_TRUE(outcome.found_inf);
    EXPECT_FALSE(outcome.success);
    EXPECT_EQ(first_difference(before, chain.snap()), "");  // neither member moved
    EXPECT_EQ(chain.scaler(0).scale(), 4.0f);
    EXPECT_EQ(chain.scaler(0), chain.scaler(1));
    // The next gradients, scaled by 4, are unscaled alike: the step equals that of a chain that had scale 4
    // all along.
    Chain fresh({}, {}, dynamic_scaler(4.0));
    for (Chain* one : {&chain, &fresh}) {
      one->gradients("next");
      EXPECT_TRUE(must(one->optimizer->step()).success);
    }
    EXPECT_EQ(first_difference(chain.snap(), fresh.snap()), "");
  }
}

// Every member is unscaled even though an earlier one overflowed: no gradient is left scaled.
TEST(ChainedOptimizer, NoShortCircuit) {
  Chain chain;
  chain.gradients("g");
  chain.dense[0]->main_grad[0][0] = kInf;
  const at::Tensor scaled = chain.experts[0]->main_grad.clone();
  EXPECT_TRUE(must(chain.optimizer->prepare_grads()));
  EXPECT_TRUE(same_bits(chain.experts[0]->main_grad, scaled * (1.0f / 64.0f)));
}

TEST(ChainedOptimizer, ScalersChangedApartAreRefused) {
  Chain chain;
  chain.optimizer->chained_optimizers()[1]->update_scaler(true);
  chain.gradients("g");
  EXPECT_NE(message(chain.optimizer->step()).find("the members' loss scalers differ (scale 64 and 32)"),
            std::string::npos);
}

TEST(ChainedOptimizer, PhasesAndStepAreOneBehaviour) {
  MegatronOptimizerOptions options;
  options.clip_grad = 0.2;
  options.log_num_zeros = true;
  Chain by_step(options), by_phases(options);
  for (int step = 0; step < 6; ++step) {
    for (Chain* chain : {&by_step, &by_phases}) {
      chain->gradients("g" + std::to_string(step));
      if (step == 3) chain->experts[0]->main_grad[0] = std::nanf("");
      chain->dense[1]->main_grad[0] = 0.0f;
    }
    const StepOutcome outcome = must(by_step.optimizer->step());
    auto& o = *by_phases.optimizer;
    o.copy_model_grads_to_main_grads();
    const bool found = must(o.unscale_local());
    o.update_scaler(found);
    ASSERT_EQ(found, step == 3);
    if (!found) {
      EXPECT_EQ(o.count_zeros_local(), *outcome.num_zeros);
      const double norm = norm_of(o.norm_local());
      EXPECT_EQ(norm, *outcome.grad_norm);
      must(o.finish_step(norm));
    }
    ASSERT_EQ(first_difference(by_step.snap(), by_phases.snap()), "");
  }
}

TEST(ChainedOptimizer, ChainsOfOneOfNoneAndNested) {
  const ParameterPtr w = parameter("w", {4});
  std::vector<std::unique_ptr<MegatronOptimizer>> one;
  one.push_back(must(FP32Optimizer::create(adam({group_of({w})}), {})));
  MegatronOptimizer* inner = one[0].get();
  auto single = must(ChainedOptimizer::create({}, std::move(one)));
  EXPECT_EQ(must(single->optimizer()), inner);
  w->main_grad = filled(w, 1.0);
  EXPECT_TRUE(must(single->step()).success);
  EXPECT_EQ(first_difference(StateValue(single->state_dict()), StateValue(inner->state_dict())), "");
  must(single->load_state_dict(inner->state_dict()));

  const auto none = must(ChainedOptimizer::create({}, {}));
  EXPECT_TRUE(none->is_stub());
  EXPECT_EQ(none->scaler(), nullptr);
  EXPECT_EQ(none->get_loss_scale().item<float>(), 1.0f);
  const StepOutcome outcome = must(none->step());
  EXPECT_TRUE(outcome.success);
  EXPECT_EQ(*outcome.grad_norm, 0.0);

  const ParameterPtr v = parameter("v", {2});
  std::vector<std::unique_ptr<MegatronOptimizer>> two;
  two.push_back(std::move(single));
  two.push_back(must(FP32Optimizer::create(adam({group_of({v})}), {})));
  const auto nested = must(ChainedOptimizer::create({}, std::move(two)));
  w->main_grad = filled(w, 3.0);
  v->main_grad = filled(v, 4.0);
  EXPECT_DOUBLE_EQ(*must(nested->step()).grad_norm, std::sqrt(4 * 9.0 + 2 * 16.0));
  const StateValue saved = clone(StateValue(nested->state_dict()));
  must(nested->step());
  must(nested->load_state_dict(*saved.get<StateDict>()));
  EXPECT_EQ(first_difference(saved, StateValue(nested->state_dict())), "");
  nested->zero_grad();
  EXPECT_FALSE(w->grad.defined());
}

TEST(ChainedOptimizer, RefusesMembersThatDoNotFit) {
  const auto make = [](double clip, LossScaler scaler) {
    MegatronOptimizerOptions options;
    options.clip_grad = clip;
    return must(Float16OptimizerWithFloat16Params::create(
        adam({group_of({parameter("w", {2}, at::kBFloat16)})}), options, scaler));
  };
  const auto chained = [](std::unique_ptr<MegatronOptimizer> a, std::unique_ptr<MegatronOptimizer> b) {
    std::vector<std::unique_ptr<MegatronOptimizer>> members;
    members.push_back(std::move(a));
    members.push_back(std::move(b));
    return message(ChainedOptimizer::create({}, std::move(members)));
  };
  EXPECT_EQ(chained(make(1.0, {}), make(1.0, {})), "no error");
  EXPECT_NE(chained(make(1.0, {}), make(0.5, {})).find("clip_grad of member 1 is 0.5, of the chain 1"),
            std::string::npos);
  EXPECT_NE(chained(make(1.0, {}), make(1.0, *LossScaler::constant(2.0))).find("loss scaler of member 1"),
            std::string::npos);
  const auto groups = thread_group(2);
  MegatronOptimizerOptions apart;
  apart.grad_stats = groups[0];
  auto other = must(FP32Optimizer::create(adam({group_of({})}), apart));
  EXPECT_NE(chained(make(1.0, {}), std::move(other)).find("different grad-stats groups"), std::string::npos);
}

// --- over ranks

// Four ranks. Dense parameters differ over pairs (0, 1) and (2, 3) (model parallel) and are copies between
// the pairs; experts differ over all four. An overflow that one expert sees is known to its expert group
// only, until it is agreed.
TEST(ChainedOptimizerRanks, SeparateGroupsAgreeBeforeAnythingDependsOnIt) {
  const auto low = thread_group(2), high = thread_group(2), all = thread_group(4), world = thread_group(4);
  MegatronOptimizerOptions options;
  options.clip_grad = 0.1;
  options.log_num_zeros = true;
  for (const int bad_rank : {-1, 0, 3}) {
    std::vector<StepOutcome> outcomes(4);
    std::vector<float> scales(4), second(4);
    double squares = 0.0;
    std::vector<double> norms(4);
    on_ranks(4, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      Chain chain(options, {rank < 2 ? low[r] : high[r - 2], all[r], world[r]}, dynamic_scaler(64.0),
                  std::to_string(rank % 2) + ".");
      chain.experts[0]->name = std::to_string(rank) + ".e";
      chain.gradients("g");
      if (rank == bad_rank) chain.experts[0]->main_grad[2] = kInf;
      const StateValue before = chain.snap();
      outcomes[r] = must(chain.optimizer->step());
      if (bad_rank >= 0) EXPECT_EQ(first_difference(before, chain.snap()), "");
      scales[r] = chain.scaler(0).scale();
      second[r] = chain.scaler(1).scale();
      EXPECT_FALSE(chain.optimizer->grads_states_parallel_group_is_shared());
    });
    for (std::size_t r = 0; r < 4; ++r) {
      EXPECT_EQ(outcomes[r].found_inf, bad_rank >= 0);
      EXPECT_EQ(outcomes[r].grad_norm, outcomes[0].grad_norm);
      EXPECT_EQ(outcomes[r].num_zeros, outcomes[0].num_zeros);
      EXPECT_EQ(scales[r], bad_rank >= 0 ? 32.0f : 64.0f);
      EXPECT_EQ(second[r], scales[r]);
    }
    if (bad_rank >= 0) continue;
    // The whole model once: dense parts of ranks 0 and 1, experts of all four.
    for (const char* name : {"0.w", "1.w"})
      squares += random_tensor({3, 2}, std::string("g") + name).to(at::kDouble).square().sum().item<double>();
    for (const char* name : {"0.norm", "1.norm"})
      squares += random_tensor({3}, std::string("g") + name).to(at::kDouble).square().sum().item<double>();
    for (const char* name : {"0.e", "1.e", "2.e", "3.e"})
      squares += random_tensor({4}, std::string("g") + name).to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(*outcomes[0].grad_norm, std::sqrt(squares), 1e-9);
  }
}

TEST(ChainedOptimizerRanks, SharedGroupIsOneNormAndStubRanksTakePart) {
  const auto group = thread_group(3);
  for (const double p : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    MegatronOptimizerOptions options;
    options.norm_type = p;
    std::vector<StepOutcome> outcomes(3);
    on_ranks(3, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (rank == 2) {  // no trainable parameter here
        MegatronOptimizerOptions mine = options;
        mine.grad_stats = group[r];
        std::vector<std::unique_ptr<MegatronOptimizer>> members;
        for (int i = 0; i < 2; ++i) {
          members.push_back(must(
              Float16OptimizerWithFloat16Params::create(adam({group_of({})}), mine, dynamic_scaler(64.0))));
        }
        const auto stub = must(ChainedOptimizer::create(mine, std::move(members)));
        EXPECT_TRUE(stub->is_stub());
        outcomes[r] = must(stub->step());
        return;
      }
      Chain chain(options, {group[r], group[r], {}}, dynamic_scaler(64.0), std::to_string(rank) + ".");
      EXPECT_TRUE(chain.optimizer->grads_states_parallel_group_is_shared());
      chain.gradients("g");
      outcomes[r] = must(chain.optimizer->step());
    });
    double expected = 0.0;
    for (const char* name : {"0.w", "1.w", "0.norm", "1.norm", "0.e", "1.e"}) {
      const std::string text(name);
      const Shape shape = text.ends_with("w") ? Shape{3, 2} : text.ends_with("norm") ? Shape{3} : Shape{4};
      const at::Tensor values = random_tensor(shape, "g" + text).to(at::kDouble).abs();
      if (std::isinf(p)) {
        expected = std::max(expected, values.max().item<double>());
      } else {
        expected += values.pow(p).sum().item<double>();
      }
    }
    if (!std::isinf(p)) expected = std::pow(expected, 1.0 / p);
    for (const StepOutcome& outcome : outcomes)
      EXPECT_NEAR(*outcome.grad_norm, expected, 1e-9) << "p = " << p;
  }
}

// A rank whose gradient is fine must not go on when another one's is not.
TEST(ChainedOptimizerRanks, CheckForNanIsAnErrorOnEveryRank) {
  const auto group = thread_group(2);
  MegatronOptimizerOptions options;
  options.check_for_nan = true;
  std::vector<std::string> messages(2);
  on_ranks(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const ParameterPtr w = parameter("w", {3}, at::kBFloat16);
    MegatronOptimizerOptions mine = options;
    mine.grad_stats = group[r];
    mine.rank = rank;
    const auto optimizer = must(Float16OptimizerWithFloat16Params::create(adam({group_of({w})}), mine, {}));
    w->main_grad = filled(w, rank == 1 ? std::nan("") : 1.0);
    messages[r] = message(optimizer->step());
  });
  EXPECT_NE(messages[0].find("rank 0: a gradient on another rank"), std::string::npos) << messages[0];
  EXPECT_NE(messages[1].find("rank 1, no bucket, parameter 'w'"), std::string::npos) << messages[1];
}

TEST(ChainedOptimizerRanks, SkipThresholdIsOneDecision) {
  // With separate groups rank 1 sees the larger norm, rank 0 does not; both skip.
  const auto world = thread_group(2);
  MegatronOptimizerOptions options;
  options.grad_norm_skip_threshold = 1.0;
  options.clip_grad = 0.0;
  std::vector<StepOutcome> outcomes(2);
  on_ranks(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto own = thread_group(1);
    const ParameterPtr w = parameter("w", {1});
    MegatronOptimizerOptions mine = options;
    std::vector<std::unique_ptr<MegatronOptimizer>> members;
    mine.grad_stats = own[0];
    members.push_back(must(FP32Optimizer::create(adam({group_of({w})}), mine)));
    mine.grad_stats = world[r];
    const auto chain = must(ChainedOptimizer::create(mine, std::move(members)));
    w->main_grad = filled(w, rank == 1 ? 5.0 : 0.5);
    const at::Tensor before = w->value.detach().clone();
    outcomes[r] = must(chain->step());
    EXPECT_TRUE(same_bits(w->value, before));
  });
  for (const StepOutcome& outcome : outcomes) EXPECT_FALSE(outcome.success);
  EXPECT_EQ(*outcomes[0].grad_norm, 0.5);
  EXPECT_EQ(*outcomes[1].grad_norm, 5.0);
}

}  // namespace
}  // namespace plumbline::test
