// The hybrid device optimizer: where a state lies changes no bit, and no copy is ever stale.
#include "engine/optim/hybrid_device_optimizer.h"

#include <functional>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/engine/optim/distributed_support.h"
#include "tests/support/property.h"

namespace plumbline::test::distributed {
namespace {

std::unique_ptr<HybridDeviceOptimizer> hybrid_of(const Case& c, const std::vector<ParameterPtr>& params,
                                                 double fraction, bool in_fp32 = true) {
  HybridDeviceOptions options;
  options.offload_fraction = fraction;
  options.param_update_in_fp32 = in_fp32;
  return must(HybridDeviceOptimizer::create(groups_of(c, params), c.rule, options));
}

void give_gradients(const Case& c, const std::vector<ParameterPtr>& params, int step, int without = -1) {
  for (int p = 0; p < static_cast<int>(params.size()); ++p) {
    at::Tensor gradient = gradient_of(c, step, 0, p);
    Parameter& parameter = *params[static_cast<std::size_t>(p)];
    if (p == without) gradient.reset();
    parameter.grad = gradient;
    parameter.decoupled_grad = gradient;
  }
}

bool same_values(const std::vector<ParameterPtr>& a, const std::vector<ParameterPtr>& b) {
  for (std::size_t p = 0; p < a.size(); ++p) {
    if (!same(a[p]->value, b[p]->value)) return false;
  }
  return true;
}

std::string state_difference(const BaseOptimizer& a, const BaseOptimizer& b) {
  return first_difference(StateValue(a.state_dict()), StateValue(b.state_dict()));
}

Case draw_case() {
  Case c;
  c.type = *rc::gen::element(at::kFloat, at::kHalf, at::kBFloat16).as("precision");
  c.sizes = {*rc::gen::inRange<std::int64_t>(1, 50).as("size 0"),
             *rc::gen::inRange<std::int64_t>(0, 50).as("size 1"),
             *rc::gen::inRange<std::int64_t>(0, 9).as("size 2")};
  c.groups = *rc::gen::inRange(1, 3).as("groups");
  const int rule = *rc::gen::inRange(0, 4).as("rule");
  if (rule == 0) {
    c.rule.rule = BaseOptimizerOptions::Rule::kSgd;
    c.momentum = *rc::gen::element(0.0, 0.9).as("momentum");
  } else {
    c.rule.decoupled_weight_decay = rule != 1;
    c.rule.precision_aware = rule == 3;
    c.rule.exp_avg_type = rule == 3 ? DType::kBF16 : DType::kF32;
  }
  return c;
}

double draw_fraction() { return *rc::gen::inRange(0, 11).as("tenths offloaded") / 10.0; }

TEST(HybridDeviceOptimizerProperty, AnyFractionGivesTheSameBits) {
  check_cases(10'000, [] {
    const Case c = draw_case();
    const bool in_fp32 = *rc::gen::arbitrary<bool>().as("16-bit parameters updated in fp32");
    const int without = *rc::gen::inRange(-1, 3).as("parameter without a gradient");
    const std::vector<ParameterPtr> params = model_of(c), resident_params = model_of(c),
                                    plain_params = model_of(c);
    const auto hybrid = hybrid_of(c, params, draw_fraction(), in_fp32);
    const auto resident = hybrid_of(c, resident_params, 0.0, in_fp32);
    BaseOptimizer plain(groups_of(c, plain_params), c.rule);
    for (int step = 0; step < 3; ++step) {
      give_gradients(c, params, step, without);
      give_gradients(c, resident_params, step, without);
      give_gradients(c, plain_params, step, without);
      hybrid->step(0.75f);
      resident->step(0.75f);
      plain.step(0.75f);
    }
    RC_ASSERT(same_values(params, resident_params));
    RC_ASSERT(state_difference(*hybrid, *resident) == "");
    if (c.type != at::kFloat && in_fp32) return;  // has an fp32 copy, which a plain optimizer lacks
    RC_ASSERT(same_values(params, plain_params));
    RC_ASSERT(state_difference(*hybrid, plain) == "");
  });
}

// Every optimizer class on every kind of base optimizer, with what a weights-only load does for it.
struct Trained {
  std::vector<ParameterPtr> params;
  std::unique_ptr<MegatronOptimizer> wrapper;  // null: the base optimizer alone
  std::unique_ptr<HybridDeviceOptimizer> alone;
  std::vector<std::shared_ptr<GradBuffer>> buffers;

  std::vector<ParamGroup*> groups() {
    if (wrapper != nullptr) return wrapper->param_groups();
    std::vector<ParamGroup*> groups;
    for (ParamGroup& group : alone->param_groups()) groups.push_back(&group);
    return groups;
  }
  void train(const Case& c, int step) {
    if (wrapper == nullptr) {
      give_gradients(c, params, step);
      alone->step();
      return;
    }
    wrapper->zero_grad();
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      Parameter& parameter = *params[static_cast<std::size_t>(p)];
      if (!parameter.main_grad.defined()) parameter.main_grad = at::zeros(parameter.value.sizes());
      parameter.main_grad.copy_(gradient_of(c, step, 0, p));
    }
    must(wrapper->step());
  }
};

enum class Class { kAlone, kWrapped, kDistributed };

Trained make(const Case& c, Class kind) {
  Trained made;
  made.params = model_of(c);
  if (kind == Class::kAlone) {
    made.alone = hybrid_of(c, made.params, std::max(c.offload_fraction, 0.0));
  } else if (kind == Class::kDistributed) {
    GradBufferOptions buffer;
    buffer.layout.bucket_size = 40;
    made.buffers = must(make_grad_buffers(made.params, buffer, buffer));
    made.wrapper = must(DistributedOptimizer::create(base_of(c, made.params), options_of(c), scaler_of(c),
                                                     {made.buffers, alone(), 1.0f}));
  } else if (c.type == at::kFloat) {
    made.wrapper = must(FP32Optimizer::create(base_of(c, made.params), options_of(c)));
  } else {
    made.wrapper =
        must(Float16OptimizerWithFloat16Params::create(base_of(c, made.params), options_of(c), scaler_of(c)));
  }
  return made;
}

Case draw_trained_case(Class& kind) {
  Case c = draw_case();
  c.rule.precision_aware = false;
  c.rule.exp_avg_type = DType::kF32;
  c.dp = 1;
  c.offload_fraction = *rc::gen::element(-1.0, 0.0, 0.3, 1.0).as("offload fraction");
  c.loss_scale = c.type == at::kHalf ? 2.0 : 0.0;
  kind = *rc::gen::element(Class::kAlone, Class::kWrapped, Class::kDistributed);
  return c;
}

// The stale-master bug: without the copies refreshed, the step would write trained (or random) weights back.
TEST(HybridDeviceOptimizerProperty, WeightsOnlyLoadThenAStepWithoutLearningRateKeepsTheWeights) {
  check_cases(10'000, [] {
    Class kind = Class::kAlone;
    const Case c = draw_trained_case(kind);
    Trained trained = make(c, kind);
    const int before = *rc::gen::inRange(0, 2).as("steps before the load");
    for (int step = 0; step < before; ++step) trained.train(c, step);
    std::vector<at::Tensor> loaded;
    for (const ParameterPtr& parameter : trained.params) {
      const CounterRng rng(*rc::gen::inRange<std::uint64_t>(0, 4).as("loaded weights"), parameter->name);
      at::Tensor value = at::empty(parameter->value.sizes());
      for (std::int64_t i = 0; i < value.numel(); ++i) {
        value.data_ptr<float>()[i] = static_cast<float>(rng.normal(static_cast<std::uint64_t>(i)));
      }
      loaded.push_back(value.to(c.type));
      // Raw memory, as a checkpoint reader may write it: LibTorch notices nothing.
      if (value.numel() > 0) {
        std::memcpy(parameter->value.data_ptr(), loaded.back().data_ptr(), loaded.back().nbytes());
      }
    }
    if (trained.wrapper != nullptr) must(trained.wrapper->reload_model_params());
    for (ParamGroup* group : trained.groups()) group->lr = 0.0;
    trained.train(c, 5);
    for (std::size_t p = 0; p < loaded.size(); ++p) RC_ASSERT(at::equal(trained.params[p]->value, loaded[p]));
  });
}

// Whatever base optimizer and fraction, the wrappers' steps are the same; a full resume, weights loaded before or
// after the states, loses no bit.
TEST(HybridDeviceOptimizerProperty, AFullResumeContinuesBitForBit) {
  check_cases(2'000, [] {
    Class kind = Class::kAlone;
    const Case c = draw_trained_case(kind);
    Case other = c;  // resumed with another part offloaded
    if (c.offload_fraction >= 0.0 || kind == Class::kAlone) {
      other.offload_fraction = *rc::gen::element(0.0, 0.3, 1.0).as("offload fraction after the resume");
    }
    Trained saving = make(c, kind), resumed = make(other, kind);
    const int steps = *rc::gen::inRange(1, 3).as("steps before");
    for (int step = 0; step < steps; ++step) saving.train(c, step);
    resumed.train(other, 9);
    const auto state_of = [](Trained& trained) {
      StateDict all;
      if (trained.alone != nullptr) {
        all["state"] = trained.alone->state_dict();
      } else {
        all["state"] = trained.wrapper->state_dict();
        if (trained.wrapper->has_parameter_state())
          all["pieces"] = must(trained.wrapper->save_parameter_state());
      }
      return *clone(StateValue(std::move(all))).get<StateDict>();
    };
    const StateDict saved = state_of(saving);
    const bool weights_first = *rc::gen::arbitrary<bool>().as("weights first");
    const auto load_weights = [&] {
      for (std::size_t p = 0; p < saving.params.size(); ++p) {
        resumed.params[p]->value.detach().copy_(saving.params[p]->value);
      }
    };
    if (weights_first) load_weights();
    const StateDict& state = *saved.at("state").get<StateDict>();
    if (resumed.alone != nullptr) {
      must(resumed.alone->load_state_dict(state));
    } else {
      must(resumed.wrapper->load_state_dict(state));
      if (const StateValue* pieces = saved.find("pieces")) {
        must(resumed.wrapper->load_parameter_state(*pieces->get<StateDict>()));
      }
    }
    if (!weights_first) load_weights();
    RC_ASSERT(first_difference(StateValue(saved), StateValue(state_of(resumed))) == "");
    for (int step = steps; step < steps + 2; ++step) {
      saving.train(c, step);
      resumed.train(other, step);
    }
    RC_ASSERT(same_values(saving.params, resumed.params));
    RC_ASSERT(first_difference(StateValue(state_of(saving)), StateValue(state_of(resumed))) == "");
  });
}

TEST(HybridDeviceOptimizer, ParametersAreOffloadedInOrderUntilTheFractionIsReached) {
  Case c;
  c.sizes = {10, 20, 30, 40};
  const auto offloaded = [&](double fraction) {
    const std::vector<ParameterPtr> params = model_of(c);
    const auto hybrid = hybrid_of(c, params, fraction);
    std::string names;
    for (const ParameterPtr& parameter : params) names += hybrid->is_offloaded(*parameter) ? '1' : '0';
    EXPECT_EQ(names == "0000", hybrid->offloaded_numel() == 0);
    return names + " " + std::to_string(hybrid->offloaded_numel());
  };
  EXPECT_EQ(offloaded(0.0), "0000 0");
  EXPECT_EQ(offloaded(0.05), "1000 10");
  EXPECT_EQ(offloaded(0.1), "1000 10");
  EXPECT_EQ(offloaded(0.3), "1100 30");
  EXPECT_EQ(offloaded(0.31), "1110 60");
  EXPECT_EQ(offloaded(1.0), "1111 100");
  for (const double fraction : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    HybridDeviceOptions options;
    options.offload_fraction = fraction;
    EXPECT_FALSE(HybridDeviceOptimizer::create({}, {}, options));
  }
}

TEST(HybridDeviceOptimizer, TheWrappersGroupsAreFollowed) {
  Case c;
  c.offload_fraction = 0.5;
  c.loss_scale = 1.0;
  Cluster cluster(c);
  for (Rank& rank : cluster.ranks) {
    auto& hybrid = static_cast<HybridDeviceOptimizer&>(rank.optimizer->inner());
    std::int64_t total = 0;
    for (const DistributedOptimizer::Shard& shard : rank.optimizer->shards()) {
      EXPECT_FALSE(hybrid.is_offloaded(*shard.model));
      total += shard.main->numel();
    }
    EXPECT_GE(hybrid.offloaded_numel() * 2, total);
    EXPECT_TRUE(hybrid.is_offloaded(*rank.optimizer->shards().front().main));
  }
}

TEST(HybridDeviceOptimizer, OnlyElementsThatWereWrittenAreTakenFromTheWeights) {
  Case c;
  c.sizes = {4};
  c.type = at::kBFloat16;
  const std::vector<ParameterPtr> params = model_of(c);
  const auto hybrid = hybrid_of(c, params, 1.0);
  give_gradients(c, params, 0);
  hybrid->step();
  const at::Tensor master = hybrid->find_state(*params[0])->master_param;
  const at::Tensor before = master.clone();
  ASSERT_FALSE(at::equal(before, params[0]->value.to(at::kFloat)));           // there are bits below bf16
  reinterpret_cast<std::uint16_t*>(params[0]->value.data_ptr())[2] = 0x4040;  // 3.0
  hybrid->param_groups()[0].lr = 0.0;
  give_gradients(c, params, 1);
  hybrid->step();
  const at::Tensor after = hybrid->find_state(*params[0])->master_param;
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(after[i].item<float>(), i == 2 ? 3.0f : before[i].item<float>()) << i;
  }
}

TEST(HybridDeviceOptimizer, UpdateFromModelDropsTheBitsBelow) {
  Case c;
  c.type = at::kBFloat16;
  const std::vector<ParameterPtr> params = model_of(c);
  const auto hybrid = hybrid_of(c, params, 0.4);
  give_gradients(c, params, 0);
  hybrid->step();
  EXPECT_EQ(hybrid->update_fp32_params_from_model(), 3);
  for (const ParameterPtr& parameter : params) {
    EXPECT_TRUE(at::equal(hybrid->find_state(*parameter)->master_param, parameter->value.to(at::kFloat)));
  }
  c.type = at::kFloat;
  EXPECT_EQ(hybrid_of(c, model_of(c), 0.4)->update_fp32_params_from_model(), 0);
}

TEST(HybridDeviceOptimizer, AStateWithoutMastersTakesTheWeights) {
  Case c;
  c.type = at::kBFloat16;
  const std::vector<ParameterPtr> params = model_of(c);
  const auto hybrid = hybrid_of(c, params, 0.4);
  give_gradients(c, params, 0);
  hybrid->step();
  StateDict state = *clone(StateValue(hybrid->state_dict())).get<StateDict>();
  for (auto& [id, one] : *state["state"].get<StateDict>()) one.get<StateDict>()->erase("master_param");
  must(hybrid->load_state_dict(state));
  std::vector<at::Tensor> weights;
  for (const ParameterPtr& parameter : params) weights.push_back(parameter->value.detach().clone());
  for (ParamGroup& group : hybrid->param_groups()) group.lr = 0.0;
  give_gradients(c, params, 1);
  hybrid->step();
  for (std::size_t p = 0; p < params.size(); ++p) {
    EXPECT_TRUE(at::equal(params[p]->value, weights[p]));
    EXPECT_TRUE(at::equal(hybrid->find_state(*params[p])->master_param, weights[p].to(at::kFloat)));
  }
}

TEST(HybridDeviceOptimizer, InitStateMakesZerosAndStepsNothing) {
  Case c;
  c.type = at::kHalf;
  const std::vector<ParameterPtr> params = model_of(c), untouched = model_of(c);
  const auto hybrid = hybrid_of(c, params, 0.5);
  hybrid->init_state();
  EXPECT_TRUE(same_values(params, untouched));
  for (const ParameterPtr& parameter : params) {
    const ParamState* state = hybrid->find_state(*parameter);
    ASSERT_NE(state, nullptr);
    EXPECT_EQ(state->step, 0);
    EXPECT_EQ(at::count_nonzero(state->exp_avg).item<std::int64_t>(), 0);
    EXPECT_TRUE(at::equal(state->master_param, parameter->value.to(at::kFloat)));
  }
}

TEST(HybridDeviceOptimizer, AGroupsStepIsCountedOnce) {
  Case c;
  c.type = at::kFloat;
  const std::vector<ParameterPtr> params = model_of(c);
  const auto hybrid = hybrid_of(c, params, 0.5);
  hybrid->param_groups()[0].step = 4;
  give_gradients(c, params, 0);
  hybrid->step();
  EXPECT_EQ(hybrid->param_groups()[0].step, 5);
  for (const ParameterPtr& parameter : params) EXPECT_EQ(hybrid->find_state(*parameter)->step, 5);
}

}  // namespace
}  // namespace plumbline::test::distributed
