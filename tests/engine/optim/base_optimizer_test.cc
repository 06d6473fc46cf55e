// Adam, AdamW and SGD: the rule against a double-precision one written out here, the fused pass against
// LibTorch's operations, and state dicts.
#include "engine/optim/base_optimizer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/model/tensors.h"
#include "tests/engine/optim/optimizer_support.h"

namespace plumbline::test {
namespace {

using Rule = BaseOptimizerOptions::Rule;

ParamGroup rich_group(std::vector<ParameterPtr> params) {
  ParamGroup group = group_of(std::move(params), 3e-2, 0.2);
  group.beta1 = 0.8;
  group.beta2 = 0.95;
  group.eps = 1e-6;
  return group;
}

// The textbook rule in double.
struct Reference {
  std::vector<double> p, m, v;
  int step = 0;

  void adam(const std::vector<double>& gradient, const ParamGroup& o, bool decoupled, double factor) {
    ++step;
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = gradient[i] * factor;
      if (!decoupled) g += o.weight_decay * p[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      if (decoupled) p[i] *= 1 - o.lr * o.weight_decay;
      const double mean = m[i] / (1 - std::pow(o.beta1, step));
      const double square = v[i] / (1 - std::pow(o.beta2, step));
      p[i] -= o.lr * mean / (std::sqrt(square) + o.eps);
    }
  }
  void sgd(const std::vector<double>& gradient, const ParamGroup& o, double factor) {
    ++step;
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = gradient[i] * factor + o.weight_decay * p[i];
      if (o.momentum != 0.0) g = m[i] = step == 1 ? g : o.momentum * m[i] + g;
      p[i] -= o.lr * g;
    }
  }
};

std::vector<double> doubles(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.detach().to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

Reference reference_of(const Parameter& parameter) {
  Reference reference;
  reference.p = doubles(parameter.value);
  reference.m.assign(reference.p.size(), 0.0);
  reference.v = reference.m;
  return reference;
}

double worst(const at::Tensor& tensor, const std::vector<double>& expected) {
  const std::vector<double> got = doubles(tensor);
  double most = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::fabs(got[i] - expected[i]) / std::max(1.0, std::fabs(expected[i])));
  }
  return most;
}

TEST(BaseOptimizer, AdamFollowsTheRule) {
  for (const bool decoupled : {true, false}) {
    const ParameterPtr w = parameter("w", {7, 5});
    Reference reference = reference_of(*w);
    const ParamGroup group = rich_group({w});
    BaseOptimizerOptions options;
    options.decoupled_weight_decay = decoupled;
    const auto optimizer = adam({group}, options);
    for (int step = 1; step <= 20; ++step) {
      w->grad = random_tensor({7, 5}, "g" + std::to_string(step));
      reference.adam(doubles(w->grad), group, decoupled, 0.5);
      optimizer->step(0.5f);
      ASSERT_LT(worst(w->value, reference.p), 2e-6) << "decoupled " << decoupled << ", step " << step;
    }
    EXPECT_EQ(optimizer->find_state(*w)->step, 20);
    EXPECT_LT(worst(optimizer->find_state(*w)->exp_avg, reference.m), 1e-6);
    EXPECT_LT(worst(optimizer->find_state(*w)->exp_avg_sq, reference.v), 1e-6);
  }
}

TEST(BaseOptimizer, SgdFollowsTheRule) {
  for (const double momentum : {0.0, 0.9}) {
    const ParameterPtr w = parameter("w", {33});
    Reference reference = reference_of(*w);
    ParamGroup group = rich_group({w});
    group.momentum = momentum;
    BaseOptimizerOptions options;
    options.rule = Rule::kSgd;
    const auto optimizer = adam({group}, options);
    for (int step = 1; step <= 20; ++step) {
      w->grad = random_tensor({33}, "g" + std::to_string(step));
      reference.sgd(doubles(w->grad), group, 2.0);
      optimizer->step(2.0f);
      ASSERT_LT(worst(w->value, reference.p), 2e-6) << "momentum " << momentum << ", step " << step;
    }
    EXPECT_EQ(optimizer->states(), momentum == 0.0 ? 0u : 1u);
  }
}

// A transposed parameter is not one array in memory, so it takes LibTorch's operations.
TEST(BaseOptimizer, PlainLoopAndFusedPassGiveTheSameBits) {
  for (const Rule rule : {Rule::kAdam, Rule::kSgd}) {
    for (const bool decoupled : {true, false}) {
      for (const DType moments : {DType::kF32, DType::kBF16}) {
        const ParameterPtr dense = parameter("w", {6, 9});
        const auto strided = std::make_shared<Parameter>(*dense);
        strided->value = dense->value.detach().t().contiguous().t();
        ASSERT_FALSE(strided->value.is_contiguous());
        BaseOptimizerOptions options;
        options.rule = rule;
        options.decoupled_weight_decay = decoupled;
        options.exp_avg_type = options.exp_avg_sq_type = moments;
        ParamGroup one = rich_group({dense}), two = rich_group({strided});
        one.momentum = two.momentum = 0.9;
        const auto fused = adam({one}, options), plain = adam({two}, options);
        const ParameterPtr fused_model = parameter("m", {6, 9}, at::kHalf),
                           plain_model = parameter("m", {6, 9}, at::kHalf);
        const std::vector<Parameter*> fused_models{fused_model.get()}, plain_models{plain_model.get()};
        for (int step = 1; step <= 5; ++step) {
          dense->grad = strided->grad = random_tensor({6, 9}, "g" + std::to_string(step));
          fused->step(0.25f, &fused_models);
          plain->step(0.25f, &plain_models);
          ASSERT_TRUE(same_bits(dense->value, strided->value)) << "step " << step;
          ASSERT_TRUE(same_bits(fused_model->value, plain_model->value)) << "step " << step;
        }
      }
    }
  }
}

TEST(BaseOptimizer, GradientFactorIsTheScaledGradient) {
  const ParameterPtr a = parameter("w", {40}), b = parameter("w", {40});
  const auto one = adam({rich_group({a})}), two = adam({rich_group({b})});
  for (int step = 1; step <= 3; ++step) {
    a->grad = random_tensor({40}, "g" + std::to_string(step));
    b->grad = a->grad * 0.37f;
    one->step(0.37f);
    two->step();
  }
  EXPECT_TRUE(same_bits(a->value, b->value));
}

TEST(BaseOptimizer, ModelCopyIsTheRoundedParameter) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const ParameterPtr main = parameter("w", {4, 11}), model = parameter("w", {4, 11}, type);
    const auto optimizer = adam({rich_group({main})});
    main->grad = random_tensor({4, 11}, "g");
    const std::vector<Parameter*> models{model.get()};
    optimizer->step(1.0f, &models);
    EXPECT_TRUE(same_bits(model->value, main->value.to(type)));
  }
}

TEST(BaseOptimizer, ParameterWithoutGradientIsLeftAlone) {
  const ParameterPtr with = parameter("a", {3}), without = parameter("b", {3}), empty = parameter("c", {0});
  const at::Tensor before = without->value.detach().clone();
  const auto optimizer = adam({group_of({with, without, empty})});
  for (int step = 0; step < 2; ++step) {
    with->grad = filled(with, 1.0);
    empty->grad = filled(empty, 1.0);
    optimizer->step();
  }
  EXPECT_TRUE(same_bits(without->value, before));
  EXPECT_EQ(optimizer->find_state(*without), nullptr);
  EXPECT_EQ(optimizer->find_state(*with)->step, 2);
  EXPECT_EQ(optimizer->find_state(*empty)->step, 2);
  without->grad = filled(without, 1.0);
  optimizer->step();
  EXPECT_EQ(optimizer->find_state(*without)->step, 1);
  EXPECT_EQ(optimizer->find_state(*with)->step, 3);
}

TEST(BaseOptimizer, GroupThatKeepsTheStep) {
  const ParameterPtr a = parameter("a", {3}), b = parameter("b", {3});
  ParamGroup group = group_of({a, b});
  group.step = 4;
  const auto optimizer = adam({group});
  a->grad = filled(a, 1.0);
  optimizer->step();
  EXPECT_EQ(optimizer->param_groups()[0].step, 5);
  EXPECT_EQ(optimizer->find_state(*a)->step, 5);
  EXPECT_EQ(optimizer->find_state(*b), nullptr);
}

TEST(BaseOptimizer, PrecisionAwareStatesReadTheDecoupledGradient) {
  const ParameterPtr w = parameter("w", {16}, at::kBFloat16);
  BaseOptimizerOptions options;
  options.precision_aware = true;
  options.exp_avg_type = DType::kBF16;
  options.exp_avg_sq_type = DType::kF16;
  const auto optimizer = adam({rich_group({w})}, options);
  w->grad = filled(w, 100.0, at::kBFloat16);
  const at::Tensor before = w->value.detach().clone();
  optimizer->step();
  EXPECT_TRUE(same_bits(w->value, before));  // grad is not what it reads
  w->decoupled_grad = random_tensor({16}, "g", 1.0, at::kBFloat16);
  optimizer->step();
  EXPECT_FALSE(same_bits(w->value, before));
  EXPECT_EQ(optimizer->find_state(*w)->exp_avg.scalar_type(), at::kBFloat16);
  EXPECT_EQ(optimizer->find_state(*w)->exp_avg_sq.scalar_type(), at::kHalf);
  const float g = w->decoupled_grad[3].item<float>();
  EXPECT_EQ(optimizer->find_state(*w)->exp_avg[3].item<float>(),
            at::full({}, static_cast<float>(1.0 - 0.8) * g).to(at::kBFloat16).item<float>());
  optimizer->zero_grad();
  EXPECT_FALSE(w->decoupled_grad.defined());
  EXPECT_TRUE(w->grad.defined());
}

// Trained a little, with states.
std::unique_ptr<BaseOptimizer> trained(const std::vector<ParameterPtr>& params,
                                       BaseOptimizerOptions options = {}) {
  ParamGroup first = rich_group({params[0], params[1]}), second = group_of({params[2]}, 1e-3, 0.0);
  second.wd_mult = 0.0;
  second.is_expert_parallel = true;
  second.optimizer = "adam";
  first.momentum = second.momentum = 0.9;
  auto optimizer = adam({first, second}, options);
  for (int step = 1; step <= 3; ++step) {
    for (const ParameterPtr& p : params) {
      p->grad = random_tensor(p->value.sizes().vec(), p->name + std::to_string(step));
    }
    optimizer->step();
  }
  return optimizer;
}

std::vector<ParameterPtr> three() {
  return {parameter("a", {2, 3}), parameter("b", {5}), parameter("c", {4})};
}

TEST(BaseOptimizerState, HasTorchsForm) {
  const std::vector<ParameterPtr> params = three();
  const StateDict state = trained(params)->state_dict();
  ASSERT_EQ((*state.dict("state"))->size(), 3u);
  const StateDict& of_c = *(*state.dict("state"))->at("2").get<StateDict>();
  EXPECT_EQ(*of_c.integer("step"), 3);
  EXPECT_EQ(of_c.tensor("exp_avg")->sizes(), at::IntArrayRef({4}));
  const StateList& groups = **state.list("param_groups");
  ASSERT_EQ(groups.size(), 2u);
  const StateDict& second = *groups[1].get<StateDict>();
  EXPECT_EQ(first_difference(*second.find("params"), StateList{2}), "");
  EXPECT_EQ(first_difference(*second.find("betas"), StateList{0.9, 0.999}), "");
  EXPECT_EQ(*second.number("wd_mult"), 0.0);
  EXPECT_TRUE(second.at("lr_mult").none());
}

TEST(BaseOptimizerState, RoundTripContinuesBitForBit) {
  for (const Rule rule : {Rule::kAdam, Rule::kSgd}) {
    BaseOptimizerOptions options;
    options.rule = rule;
    const std::vector<ParameterPtr> params = three(), copies = three();
    const auto optimizer = trained(params, options);
    const StateValue saved = clone(optimizer->state_dict());
    auto fresh = adam({group_of({copies[0], copies[1]}), group_of({copies[2]})}, options);
    for (std::size_t i = 0; i < 3; ++i) copies[i]->value = params[i]->value.detach().clone();
    must(fresh->load_state_dict(*saved.get<StateDict>()));
    EXPECT_EQ(first_difference(saved, fresh->state_dict()), "");
    for (std::size_t i = 0; i < 3; ++i) {
      copies[i]->grad = params[i]->grad = random_tensor(params[i]->value.sizes().vec(), "again");
    }
    optimizer->step();
    fresh->step();
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(params[i]->value, copies[i]->value)) << i;
  }
}

TEST(BaseOptimizerState, LoadsIntoOtherPrecisionsAndDropsWhatWasNotSaved) {
  const std::vector<ParameterPtr> params = three();
  const auto optimizer = trained(params);
  StateDict state = *clone(optimizer->state_dict()).get<StateDict>();
  state.find("state")->get<StateDict>()->erase("1");
  BaseOptimizerOptions options;
  options.exp_avg_type = DType::kBF16;
  const auto other = adam({group_of({params[0], params[1]}), group_of({params[2]})}, options);
  other->init_state();
  must(other->load_state_dict(state));
  EXPECT_EQ(other->find_state(*params[1]), nullptr);
  EXPECT_TRUE(same_bits(other->find_state(*params[0])->exp_avg,
                        optimizer->find_state(*params[0])->exp_avg.to(at::kBFloat16)));
  EXPECT_TRUE(
      same_bits(other->find_state(*params[0])->exp_avg_sq, optimizer->find_state(*params[0])->exp_avg_sq));
}

// torch keeps the step as a tensor and switches of its own in the groups.
TEST(BaseOptimizerState, TakesTorchsStepTensorAndSwitches) {
  const std::vector<ParameterPtr> params = three();
  const auto optimizer = trained(params);
  StateDict state = *clone(optimizer->state_dict()).get<StateDict>();
  (*state.find("state")->get<StateDict>()->find("0")->get<StateDict>())["step"] = at::full({}, 3.0);
  StateDict& group = *(*state.find("param_groups")->get<StateList>())[0].get<StateDict>();
  group["amsgrad"] = false;
  group["bias_correction"] = true;
  group["foreach"] = StateValue();
  group["pre_lr_mult"] = 2.0;
  must(optimizer->load_state_dict(state));
  EXPECT_EQ(optimizer->find_state(*params[0])->step, 3);
  EXPECT_EQ(optimizer->param_groups()[0].lr_mult, 2.0);
  group["amsgrad"] = true;
  EXPECT_NE(message(optimizer->load_state_dict(state)).find("parameter group 0, amsgrad"), std::string::npos);
}

TEST(BaseOptimizerState, OwnHandlesInAnotherOrder) {
  const ParameterPtr a = parameter("a", {4}), b = parameter("b", {4});
  const auto optimizer = adam({group_of({a, b})});
  a->grad = random_tensor({4}, "ga");
  b->grad = random_tensor({4}, "gb");
  optimizer->step();
  const at::Tensor was_a = optimizer->find_state(*a)->exp_avg.clone(),
                   was_b = optimizer->find_state(*b)->exp_avg.clone();
  StateDict state = optimizer->state_dict();
  StateDict& states = *state.find("state")->get<StateDict>();
  std::swap(*states.find("0"), *states.find("1"));
  must(optimizer->load_state_dict(state));
  EXPECT_TRUE(same_bits(optimizer->find_state(*a)->exp_avg, was_b));
  EXPECT_TRUE(same_bits(optimizer->find_state(*b)->exp_avg, was_a));
}

TEST(BaseOptimizerState, RefusalsNameThePlaceAndChangeNothing) {
  const std::vector<ParameterPtr> params = three();
  const auto optimizer = trained(params);
  const StateValue before = clone(optimizer->state_dict());
  const auto refused = [&](const std::function<void(StateDict&)>& spoil, const std::string& words) {
    StateDict state = *clone(before).get<StateDict>();
    (*(*state.find("param_groups")->get<StateList>())[0].get<StateDict>())["lr"] = 77.0;  // must not stick
    spoil(state);
    const Status loaded = optimizer->load_state_dict(state);
    EXPECT_NE(message(loaded).find(words), std::string::npos) << message(loaded);
    EXPECT_EQ(first_difference(before, optimizer->state_dict()), "");
  };
  const auto of = [](StateDict& state, const char* id) -> StateDict& {
    return *state.find("state")->get<StateDict>()->find(id)->get<StateDict>();
  };
  const auto group = [](StateDict& state, std::size_t g) -> StateDict& {
    return *(*state.find("param_groups")->get<StateList>())[g].get<StateDict>();
  };
  refused([&](StateDict& s) { of(s, "1").erase("exp_avg_sq"); },
          "parameter group 0, parameter 'b', exp_avg_sq: absent");
  refused([&](StateDict& s) { of(s, "2").erase("step"); }, "parameter group 1, parameter 'c', step: absent");
  refused(
      [&](StateDict& s) { of(s, "2")["exp_avg"] = at::zeros({3}); },
      "parameter group 1, parameter 'c', exp_avg: is tensor float32[3]; the parameter is tensor float32[4]");
  refused(
      [&](StateDict& s) {
        of(s, "0")["max_exp_avg_sq"] = at::zeros({2, 3});
      },
      "parameter group 0, parameter 'a', max_exp_avg_sq: not a state");
  refused([&](StateDict& s) { of(s, "0")["exp_avg"] = 1.0; },
          "parameter group 0, parameter 'a', exp_avg: is float");
  refused([&](StateDict& s) { of(s, "0")["step"] = "three"; },
          "parameter group 0, parameter 'a', step: is text");
  refused([&](StateDict& s) { (*s.find("state")->get<StateDict>())["3"] = StateDict{}; },
          "state.3: a state of a");
  refused([&](StateDict& s) { (*s.find("state")->get<StateDict>())["common"] = 3; }, "state.common: is int");
  refused([&](StateDict& s) { group(s, 0)["params"] = StateList{0}; },
          "parameter group 0: 1 parameters were saved, the optimizer has 2");
  refused([&](StateDict& s) { group(s, 1)["params"] = StateList{0}; }, "state.2: a state of a parameter");
  refused([&](StateDict& s) { group(s, 1).erase("params"); },
          "parameter group 1: the state has no \"params\"");
  refused([&](StateDict& s) { group(s, 1)["betas"] = 0.9; }, "parameter group 1, betas: is float");
  refused([&](StateDict& s) { group(s, 1)["colour"] = 1; }, "parameter group 1, colour: not a setting");
  refused([&](StateDict& s) { group(s, 1)["is_expert_parallel"] = 1; },
          "parameter group 1, is_expert_parallel: is int; it must be a bool or None");
  refused([&](StateDict& s) { s.find("param_groups")->get<StateList>()->pop_back(); },
          "param_groups: 1 groups were saved, the optimizer has 2");
  refused([&](StateDict& s) { s.erase("state"); }, "state");
}

TEST(BaseOptimizerState, InitMakesZerosAtStepZero) {
  const std::vector<ParameterPtr> params = three();
  const auto optimizer = adam({group_of(params)});
  optimizer->init_state();
  ASSERT_EQ(optimizer->states(), 3u);
  for (const ParameterPtr& p : params) {
    EXPECT_EQ(optimizer->find_state(*p)->step, 0);
    EXPECT_TRUE(same_bits(optimizer->find_state(*p)->exp_avg, at::zeros(p->value.sizes())));
    EXPECT_FALSE(optimizer->find_state(*p)->momentum_buffer.defined());
  }
  // An initialized state and none are the same training.
  const std::vector<ParameterPtr> copies = three();
  const auto other = adam({group_of(copies)});
  for (std::size_t i = 0; i < 3; ++i) {
    params[i]->grad = copies[i]->grad = random_tensor(params[i]->value.sizes().vec(), "g");
  }
  optimizer->step();
  other->step();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(params[i]->value, copies[i]->value));
}

TEST(BaseOptimizerState, MoveStateHandsOverMomentsAndStep) {
  const std::vector<ParameterPtr> params = three();
  const auto optimizer = trained(params);
  const ParameterPtr other = parameter("other", {2, 3});
  const at::Tensor moment = optimizer->find_state(*params[0])->exp_avg;
  optimizer->move_state(*params[0], *other);
  EXPECT_EQ(optimizer->find_state(*params[0]), nullptr);
  EXPECT_TRUE(optimizer->find_state(*other)->exp_avg.is_same(moment));
  EXPECT_EQ(optimizer->find_state(*other)->step, 3);
  optimizer->erase_state(*other);
  EXPECT_EQ(optimizer->states(), 2u);
}

}  // namespace
}  // namespace plumbline::test
