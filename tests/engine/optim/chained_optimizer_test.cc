// Chains: one decision, one loss scale, one norm; states of several members.
#include "engine/optim/chained_optimizer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/optim/proxy_dict.h"
#include "tests/engine/optim/optimizer_support.h"

namespace plumbline::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct ChainGroups {
  std::shared_ptr<Collective> dense, expert, decision;
};

// A dense member and an expert one, fp16.
struct Chain {
  std::vector<ParameterPtr> dense, experts;
  std::unique_ptr<ChainedOptimizer> optimizer;

  explicit Chain(MegatronOptimizerOptions options = {}, const ChainGroups& groups = {},
                 LossScaler scaler = dynamic_scaler(64.0), const std::string& name = "") {
    dense = {parameter(name + "w", {3, 2}, at::kHalf), parameter(name + "norm", {3})};
    experts = {parameter(name + "e", {4}, at::kHalf)};
    experts[0]->expert = true;
    std::vector<std::unique_ptr<MegatronOptimizer>> members;
    options.grad_stats = groups.dense;
    members.push_back(
        must(Float16OptimizerWithFloat16Params::create(adam({group_of(dense)}), options, scaler)));
    options.grad_stats = groups.expert;
    members.push_back(
        must(Float16OptimizerWithFloat16Params::create(adam({group_of(experts)}), options, scaler)));
    options.grad_stats = groups.decision;
    optimizer = must(ChainedOptimizer::create(options, std::move(members)));
  }
  std::vector<ParameterPtr> models() const {
    std::vector<ParameterPtr> all = dense;
    all.insert(all.end(), experts.begin(), experts.end());
    return all;
  }
  void gradients(const std::string& seed) {
    const double scale = optimizer->get_loss_scale().item<double>();
    for (const ParameterPtr& model : models()) {
      model->main_grad = random_tensor(model->value.sizes().vec(), seed + model->name) * scale;
    }
  }
  const LossScaler& scaler(std::size_t member) const {
    return *optimizer->chained_optimizers()[member]->scaler();
  }
  StateValue snap() { return snapshot(*optimizer, models()); }
};

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

// The hazard of separate scalers (specs B-H1): an overflow that one member sees. Upstream's members then
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

// --- states

TEST(ChainedState, DictionaryAndListForms) {
  Chain one, two;
  for (const char* seed : {"a", "b"}) {
    one.gradients(seed);
    must(one.optimizer->step());
  }
  const StateDict state = *clone(StateValue(one.optimizer->state_dict())).get<StateDict>();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_TRUE(state.contains("0") && state.contains("1"));
  const auto copy_models = [&](Chain& to) {
    for (std::size_t i = 0; i < 3; ++i) to.models()[i]->value.detach().copy_(one.models()[i]->value);
  };
  copy_models(two);
  const StateDict backwards{{"1", *state.find("1")}, {"0", *state.find("0")}};  // read by key, not by place
  must(two.optimizer->load_state_dict(backwards));
  EXPECT_EQ(first_difference(one.snap(), two.snap()), "");
  EXPECT_EQ(two.scaler(1), one.scaler(1));
  Chain three;
  copy_models(three);
  must(three.optimizer->load_state_list(one.optimizer->state_list()));
  EXPECT_EQ(first_difference(one.snap(), three.snap()), "");
  for (Chain* chain : {&one, &three}) {
    chain->gradients("c");
    must(chain->optimizer->step());
  }
  EXPECT_EQ(first_difference(one.snap(), three.snap()), "");
}

TEST(ChainedState, RefusesOtherLengthsKeysAndMembers) {
  Chain chain;
  StateDict state = chain.optimizer->state_dict();
  StateDict longer = state, renamed = state, spoiled = state, no_dict = state;
  longer["2"] = StateDict{};
  EXPECT_NE(
      message(chain.optimizer->load_state_dict(longer)).find("the chain has 2 members, the state 3 entries"),
      std::string::npos);
  renamed.erase("1");
  renamed["01x"] = StateDict{};
  EXPECT_NE(message(chain.optimizer->load_state_dict(renamed)).find("key '01x'"), std::string::npos);
  spoiled.find("1")->get<StateDict>()->erase("fp32_from_fp16_params");
  EXPECT_NE(message(chain.optimizer->load_state_dict(spoiled)).find("member 1 of the chain"),
            std::string::npos);
  no_dict["1"] = 3;
  EXPECT_NE(message(chain.optimizer->load_state_dict(no_dict)).find("member 1 of the chain: is int"),
            std::string::npos);
  EXPECT_NE(message(chain.optimizer->load_state_list({})).find("the state 0 entries"), std::string::npos);
}

// A file whose scalers drifted apart (upstream writes such): the one the loss is scaled by is right.
TEST(ChainedState, DriftedScalersBecomeTheFirstWithANotice) {
  Chain chain;
  StateDict state = *clone(StateValue(chain.optimizer->state_dict())).get<StateDict>();
  (*state.find("1")->get<StateDict>()->find("grad_scaler")->get<StateDict>())["scale"] = at::full({1}, 16.0f);
  must(chain.optimizer->load_state_dict(state));
  ASSERT_EQ(chain.optimizer->load_notices().size(), 1u);
  EXPECT_NE(chain.optimizer->load_notices()[0].find("member 1 had loss scale 16"), std::string::npos);
  EXPECT_EQ(chain.scaler(1).scale(), 64.0f);
  EXPECT_EQ(chain.scaler(0), chain.scaler(1));
  StateDict without = state;
  without.find("0")->get<StateDict>()->erase("grad_scaler");
  without.find("1")->get<StateDict>()->erase("grad_scaler");
  must(chain.optimizer->load_state_dict(without));
  EXPECT_EQ(chain.optimizer->load_notices().size(), 2u);
}

TEST(ChainedState, SynchronizeStepsReachesEmptyGroups) {
  const auto member = [](std::vector<ParameterPtr> params, std::optional<std::int64_t> step) {
    ParamGroup full = group_of(std::move(params)), empty = group_of({});
    full.step = step;
    empty.step = 0;
    empty.wd_mult = 0.0;
    return must(FP32Optimizer::create(adam({full, empty}), {}));
  };
  std::vector<std::unique_ptr<MegatronOptimizer>> members;
  members.push_back(member({parameter("a", {1})}, 7));
  members.push_back(member({parameter("b", {1})}, 7));
  const auto chain = must(ChainedOptimizer::create({}, std::move(members)));
  EXPECT_EQ(must(chain->synchronize_steps()), 7);
  for (const ParamGroup* group : chain->param_groups()) EXPECT_EQ(group->step, 7);
  chain->param_groups()[2]->step = 8;
  EXPECT_NE(message(chain->synchronize_steps()).find("at steps 7 and 8"), std::string::npos);
  EXPECT_NE(message(chain->sharded_state_dict(false, {})).find("at steps 7 and 8"), std::string::npos);
  const auto none = must(ChainedOptimizer::create({}, {}));
  EXPECT_EQ(must(none->synchronize_steps()), std::nullopt);
}

TEST(ChainedState, SplitsTheModelsChunks) {
  Chain chain;
  const StateDict single{{"model", StateDict{{"w", 1}}}};
  for (const auto& part : must(chain.optimizer->split_state_dict(single))) {
    EXPECT_EQ(first_difference(StateValue(*part), StateValue(single)), "");
  }
  chain.optimizer->set_model_chunks({{0}, {1, 2}});
  const StateDict three{{"model0", "a"}, {"model1", "b"}, {"model2", "c"}};
  auto parts = must(chain.optimizer->split_state_dict(three));
  EXPECT_EQ(first_difference(StateValue(*parts[0]), StateValue(StateDict{{"model0", "a"}})), "");
  EXPECT_EQ(first_difference(StateValue(*parts[1]), StateValue(StateDict{{"model0", "b"}, {"model1", "c"}})),
            "");
  const StateDict underscored{{"model_0", "a"}, {"model_1", "b"}, {"model_2", "c"}};
  parts = must(chain.optimizer->split_state_dict(underscored));
  EXPECT_TRUE(parts[1]->contains("model_1"));
  // Both members have all chunks: dense and expert parameters of the same layers.
  chain.optimizer->set_model_chunks({{0, 1}, {0, 1}});
  parts = must(chain.optimizer->split_state_dict(three));
  EXPECT_EQ(first_difference(StateValue(*parts[0]), StateValue(*parts[1])), "");
  chain.optimizer->set_model_chunks({{0, 1}, {}});
  EXPECT_FALSE(must(chain.optimizer->split_state_dict(three))[1].has_value());
  chain.optimizer->set_model_chunks({{0}, {3}});
  EXPECT_NE(message(chain.optimizer->split_state_dict(three)).find("model3: not in the state"),
            std::string::npos);
  EXPECT_NE(message(chain.optimizer->reload_model_params(&three)).find("model3"), std::string::npos);
  chain.optimizer->set_model_chunks({{0}, {1}});
  EXPECT_NE(message(chain.optimizer->reload_model_params(&three))
                .find("member 0 of the chain: reload_model_params"),
            std::string::npos);
  chain.dense[0]->value.detach().fill_(0.5);
  must(chain.optimizer->reload_model_params());
  EXPECT_EQ(chain.optimizer->get_parameters()[0]->value[0][0].item<float>(), 0.5f);
}

TEST(ChainedState, ShardedKeysHaveTheMembersPrefix) {
  Chain one, two;
  one.gradients("a");
  must(one.optimizer->step());
  const ShardedStateDict saved = must(one.optimizer->sharded_state_dict(false, {}));
  std::size_t first = 0, second = 0;
  for (const ShardedTensor& tensor : saved.tensors) {
    first += tensor.key.starts_with("chained_0.optimizer.state.");
    second += tensor.key.starts_with("chained_1.optimizer.state.");
  }
  EXPECT_EQ(first, 5u);  // w: main copy and two moments, norm: two moments
  EXPECT_EQ(second, 3u);
  EXPECT_EQ(saved.tensors.size(), 8u);
  const ShardedStateDict target = must(two.optimizer->sharded_state_dict(true, {}));
  ASSERT_EQ(target.tensors.size(), saved.tensors.size());
  for (std::size_t i = 0; i < target.tensors.size(); ++i) {
    EXPECT_EQ(target.tensors[i].key, saved.tensors[i].key);
    target.tensors[i].data.copy_(saved.tensors[i].data);
  }
  must(two.optimizer->load_sharded_objects(saved.objects, {}));
  EXPECT_EQ(
      first_difference(StateValue(one.optimizer->state_dict()), StateValue(two.optimizer->state_dict())), "");
}

// A member with a parameter state of its own, as the distributed optimizer has.
class WithParameterState : public FP32Optimizer {
 public:
  WithParameterState() : FP32Optimizer(adam({group_of({parameter("p", {1})})}), {}, {}) {}
  bool has_parameter_state() const override { return true; }
  Result<StateDict> save_parameter_state() override { return StateDict{{"state", 5}}; }
  Status load_parameter_state(const StateDict& state, bool update_legacy_format) override {
    loaded = *state.integer("state");
    legacy = update_legacy_format;
    return {};
  }
  std::int64_t loaded = 0;
  bool legacy = false;
};

TEST(ChainedState, ParameterStateGoesToTheMembersThatHaveOne) {
  std::vector<std::unique_ptr<MegatronOptimizer>> members;
  members.push_back(must(FP32Optimizer::create(adam({group_of({parameter("a", {1})})}), {})));
  auto with = std::make_unique<WithParameterState>();
  WithParameterState& member = *with;
  members.push_back(std::move(with));
  const auto chain = must(ChainedOptimizer::create({}, std::move(members)));
  const StateDict state = must(chain->save_parameter_state());
  EXPECT_TRUE(state.at("0").none());
  must(chain->load_parameter_state(state, true));
  EXPECT_EQ(member.loaded, 5);
  EXPECT_TRUE(member.legacy);
  const StateDict swapped{{"0", state.at("1")}, {"1", state.at("0")}};
  EXPECT_NE(message(chain->load_parameter_state(swapped)).find("member 0 of the chain"), std::string::npos);
  EXPECT_FALSE(chain->load_parameter_state({{"0", StateValue()}}).has_value());
  Chain plain;
  EXPECT_FALSE(plain.optimizer->has_parameter_state());
  EXPECT_EQ(plain.optimizer->save_parameter_state().error().code, ErrorCode::kUnsupported);
}

TEST(ChainedState, OffloadRestoreAndInitReachAllMembers) {
  Chain stays, moves;
  stays.optimizer->init_state();
  moves.optimizer->init_state();
  for (int step = 0; step < 2; ++step) {
    must(moves.optimizer->offload_to_cpu());
    moves.gradients("x");
    EXPECT_FALSE(moves.optimizer->step().has_value());
    must(moves.optimizer->restore_from_cpu());
    for (Chain* chain : {&stays, &moves}) {
      chain->gradients("g" + std::to_string(step));
      must(chain->optimizer->step());
    }
    EXPECT_EQ(first_difference(stays.snap(), moves.snap()), "");
  }
}

// Megatron's ChainedOptimizer.state: entries of all members under (member, key).
TEST(ChainedState, ProxyOverTheMembersStates) {
  Chain chain;
  chain.optimizer->init_state();
  StateList list = chain.optimizer->state_list();
  std::vector<StateDict*> states;
  for (StateValue& one : list) {
    states.push_back(
        one.get<StateDict>()->find("optimizer")->get<StateDict>()->find("state")->get<StateDict>());
  }
  const ProxyDict proxy(states);
  EXPECT_EQ(proxy.size(), 3u);
  EXPECT_TRUE(proxy.contains({1, "0"}));
  EXPECT_TRUE((proxy[{1, "7"}]).none());
}

}  // namespace
}  // namespace plumbline::test
