// State dicts of the wrappers: groups matched by identity with their states, old names, notices, refusals,
// sharded keys.
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/optim/optimizer_support.h"

namespace plumbline::test {
namespace {

// Three groups that differ in identity, the middle one without parameters.
struct Grouped {
  std::vector<ParameterPtr> models;
  std::unique_ptr<Float16OptimizerWithFloat16Params> optimizer;

  // `order` permutes the groups: order[i] is which of the three comes i-th.
  explicit Grouped(std::vector<std::size_t> order = {0, 1, 2}, LossScaler scaler = dynamic_scaler(16.0)) {
    models = {parameter("w", {2, 3}, at::kHalf), parameter("norm", {3}), parameter("v", {6}, at::kHalf),
              parameter("b", {6}, at::kHalf)};
    std::vector<ParamGroup> groups = {group_of({models[0], models[1], models[2]}), group_of({}, 5e-3),
                                      group_of({models[3]}, 2e-2, 0.0)};
    groups[1].is_expert_parallel = true;
    groups[2].wd_mult = 0.0;
    std::vector<ParamGroup> permuted;
    for (const std::size_t g : order) permuted.push_back(groups[g]);
    optimizer = must(Float16OptimizerWithFloat16Params::create(adam(permuted), {}, scaler));
  }
  StepOutcome train(const std::string& seed) {
    const double scale = optimizer->get_loss_scale().item<double>();
    for (const ParameterPtr& model : models) {
      model->main_grad = random_tensor(model->value.sizes().vec(), seed + model->name) * scale;
    }
    return must(optimizer->step());
  }
  StateDict saved() { return *clone(StateValue(optimizer->state_dict())).get<StateDict>(); }
  void copy_models(const Grouped& other) {
    for (std::size_t i = 0; i < models.size(); ++i)
      models[i]->value = other.models[i]->value.detach().clone();
  }
  const ParameterPtr& main(const std::string& name) {
    mains_ = optimizer->get_parameters();
    for (const ParameterPtr& one : mains_) {
      if (one->name == name) return one;
    }
    throw std::runtime_error("no parameter " + name);
  }

 private:
  std::vector<ParameterPtr> mains_;
};

StateDict& dict_at(StateDict& state, const std::string& key) { return *state.find(key)->get<StateDict>(); }
StateList& list_at(StateDict& state, const std::string& key) { return *state.find(key)->get<StateList>(); }

TEST(OptimizerState, HasMegatronsForm) {
  Grouped grouped;
  grouped.train("a");
  StateDict state = grouped.saved();
  ASSERT_EQ(state.size(), 3u);
  EXPECT_EQ(list_at(dict_at(state, "optimizer"), "param_groups").size(), 3u);
  EXPECT_EQ(dict_at(dict_at(state, "optimizer"), "state").size(), 4u);
  EXPECT_TRUE(dict_at(state, "grad_scaler").contains("scale"));
  const StateList& mains = list_at(state, "fp32_from_fp16_params");
  ASSERT_EQ(mains.size(), 3u);
  EXPECT_EQ(mains[0].get<StateList>()->size(), 2u);  // the native fp32 one has no copy
  EXPECT_TRUE(mains[1].get<StateList>()->empty());
  EXPECT_TRUE(same_bits(*(*mains[2].get<StateList>())[0].get<at::Tensor>(), grouped.main("b")->value));
}

TEST(OptimizerState, RoundTripContinuesBitForBit) {
  Grouped one, two;
  one.train("a");
  one.train("b");
  const StateDict saved = one.saved();
  two.copy_models(one);
  must(two.optimizer->load_state_dict(saved));
  EXPECT_TRUE(two.optimizer->load_notices().empty());
  EXPECT_EQ(first_difference(StateValue(saved), StateValue(two.saved())), "");
  for (const char* seed : {"c", "d"}) {
    one.train(seed);
    two.train(seed);
    ASSERT_EQ(first_difference(snapshot(*one.optimizer, one.models), snapshot(*two.optimizer, two.models)),
              "");
  }
}

// Settings, moments, steps and main copies follow the identity of a group, whatever its place in the file.
TEST(OptimizerState, PermutedGroupsAreMatchedByIdentity) {
  const std::vector<std::vector<std::size_t>> orders = {
      {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}};
  for (const auto& order : orders) {
    Grouped saver(order), plain, loader;
    for (const char* seed : {"a", "b"}) {
      saver.train(seed);
      plain.train(seed);
    }
    loader.copy_models(saver);
    StateDict state = saver.saved();
    must(loader.optimizer->load_state_dict(state));
    EXPECT_EQ(first_difference(snapshot(*plain.optimizer, plain.models),
                               snapshot(*loader.optimizer, loader.models)),
              "");
    EXPECT_EQ(loader.optimizer->param_groups()[2]->lr, 2e-2);
  }
}

TEST(OptimizerState, TakesOldNamesAndACommonStep) {
  Grouped one, two;
  one.train("a");
  one.train("b");
  StateDict state = one.saved(), old;
  two.copy_models(one);
  StateDict inner = dict_at(state, "optimizer");
  for (auto& [id, value] : dict_at(inner, "state")) value.get<StateDict>()->erase("step");
  dict_at(inner, "state")["common_step"] = 2;
  old["optimizer_state_dict"] = inner;
  old["fp32_from_fp16"] = *state.find("fp32_from_fp16_params");
  old["grad_scaler"] = *state.find("grad_scaler");
  must(two.optimizer->load_state_dict(old));
  EXPECT_EQ(first_difference(snapshot(*one.optimizer, one.models), snapshot(*two.optimizer, two.models)), "");
  EXPECT_EQ(two.optimizer->find_state(*two.main("w"))->step, 2);
}

TEST(OptimizerState, StepZeroIsASavedStep) {
  Grouped one, two;
  one.optimizer->init_state();
  two.train("a");
  must(two.optimizer->load_state_dict(one.saved()));
  EXPECT_EQ(two.optimizer->find_state(*two.main("w"))->step, 0);
}

TEST(OptimizerState, MissingAndSuperfluousScalersAreNotices) {
  Grouped one, two({0, 1, 2}, *LossScaler::constant(2.0));
  one.train("a");
  StateDict state = one.saved();
  StateDict without = state;
  without.erase("grad_scaler");
  must(one.optimizer->load_state_dict(without));
  ASSERT_EQ(one.optimizer->load_notices().size(), 1u);
  EXPECT_NE(one.optimizer->load_notices()[0].find("no grad_scaler in the state: the loss scale stays 16"),
            std::string::npos);
  must(one.optimizer->load_state_dict(state));
  EXPECT_TRUE(one.optimizer->load_notices().empty());

  const ParameterPtr w = parameter("w", {2}, at::kBFloat16);
  const auto plain = must(Float16OptimizerWithFloat16Params::create(adam({group_of({w})}), {}, {}));
  StateDict with = plain->state_dict();
  EXPECT_FALSE(with.contains("grad_scaler"));
  with["grad_scaler"] = dict_at(state, "grad_scaler");
  must(plain->load_state_dict(with));
  ASSERT_EQ(plain->load_notices().size(), 1u);
  EXPECT_NE(plain->load_notices()[0].find("this optimizer has none"), std::string::npos);
}

TEST(OptimizerState, RefusalsChangeNothing) {
  Grouped grouped;
  grouped.train("a");
  const StateDict saved = grouped.saved();
  grouped.train("b");
  const StateValue before = clone(StateValue(grouped.optimizer->state_dict()));
  const auto refused = [&](const std::function<void(StateDict&)>& spoil, const std::string& words) {
    StateDict state = *clone(StateValue(saved)).get<StateDict>();
    spoil(state);
    const Status loaded = grouped.optimizer->load_state_dict(state);
    EXPECT_NE(message(loaded).find(words), std::string::npos) << message(loaded);
    EXPECT_EQ(first_difference(before, StateValue(grouped.optimizer->state_dict())), "") << words;
  };
  refused([](StateDict& s) { list_at(dict_at(s, "optimizer"), "param_groups").pop_back(); },
          "2 groups were saved");
  refused(
      [](StateDict& s) {
        (*list_at(dict_at(s, "optimizer"), "param_groups")[2].get<StateDict>())["wd_mult"] = 0.5;
      },
      "wd_mult");
  refused([](StateDict& s) { list_at(s, "fp32_from_fp16_params").pop_back(); },
          "fp32_from_fp16_params: 2 groups were saved, the optimizer has 3");
  refused([](StateDict& s) { list_at(s, "fp32_from_fp16_params")[0].get<StateList>()->pop_back(); },
          "fp32_from_fp16_params: group 0 is list of 1; the optimizer's group 0 has 2");
  refused(
      [](StateDict& s) { (*list_at(s, "fp32_from_fp16_params")[2].get<StateList>())[0] = at::zeros({5}); },
      "group 2, parameter 'b' is tensor float32[5]; its main copy is tensor float32[6]");
  refused([](StateDict& s) { s.erase("fp32_from_fp16_params"); }, "fp32_from_fp16");
  refused([](StateDict& s) { s.erase("optimizer"); }, "optimizer_state_dict");
  refused([](StateDict& s) { dict_at(s, "grad_scaler").erase("growth_tracker"); }, "grad_scaler");
  refused([](StateDict& s) { dict_at(dict_at(s, "optimizer"), "state")["9"] = StateDict{}; }, "state.9");
  refused([](StateDict& s) { dict_at(dict_at(dict_at(s, "optimizer"), "state"), "3").erase("exp_avg"); },
          "parameter group 2, parameter 'b', exp_avg");
  refused([](StateDict& s) { dict_at(dict_at(s, "optimizer"), "state")["common_step"] = "two"; },
          "common_step");
}

TEST(OptimizerState, IsLoadingMakesStatesFirst) {
  Grouped grouped;
  EXPECT_EQ(dict_at(*clone(StateValue(grouped.optimizer->state_dict())).get<StateDict>(), "optimizer").size(),
            2u);
  StateDict before = grouped.saved();
  EXPECT_TRUE(dict_at(dict_at(before, "optimizer"), "state").empty());
  StateDict state = *clone(StateValue(grouped.optimizer->state_dict(true))).get<StateDict>();
  EXPECT_EQ(dict_at(dict_at(state, "optimizer"), "state").size(), 4u);

  int called = 0;
  const auto optimizer =
      must(FP32Optimizer::create(adam({group_of({parameter("w", {2})})}), {}, [&](BaseOptimizer& inner) {
        ++called;
        inner.init_state();
      }));
  optimizer->state_dict();
  EXPECT_EQ(called, 0);
  EXPECT_EQ(dict_at(*clone(StateValue(optimizer->state_dict(true))).get<StateDict>(), "state").size(), 1u);
  EXPECT_EQ(called, 1);
  must(optimizer->sharded_state_dict(true, {}));
  EXPECT_EQ(called, 2);
}

TEST(OptimizerState, Fp32RoundTripWithPermutedGroups) {
  const auto make = [](bool swapped, std::vector<ParameterPtr>& params) {
    params = {parameter("a", {4}), parameter("b", {4})};
    ParamGroup one = group_of({params[0]}), two = group_of({params[1]}, 3e-3);
    two.lr_mult = 0.5;
    return must(FP32Optimizer::create(adam(swapped ? std::vector{two, one} : std::vector{one, two}), {}));
  };
  std::vector<ParameterPtr> here, there;
  const auto saver = make(true, here), loader = make(false, there);
  for (const ParameterPtr& p : here) p->main_grad = random_tensor({4}, "g" + p->name);
  must(saver->step());
  must(loader->load_state_dict(saver->state_dict()));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(same_bits(loader->find_state(*there[i])->exp_avg, saver->find_state(*here[i])->exp_avg)) << i;
  }
}

TEST(OptimizerState, IdentifierKeysAreAnOption) {
  const auto make = [](double max_lr, const std::vector<std::string>& keys) {
    ParamGroup group = group_of({parameter("a", {4})});
    group.max_lr = max_lr;
    MegatronOptimizerOptions options;
    options.identifier_keys = keys;
    return must(FP32Optimizer::create(adam({group}), options));
  };
  EXPECT_TRUE(make(1.0, {})->load_state_dict(make(2.0, {})->state_dict()).has_value());
  EXPECT_FALSE(make(1.0, {"wd_mult", "max_lr"})->load_state_dict(make(2.0, {})->state_dict()).has_value());
}

// --- sharded

const ShardedTensor* find(const ShardedStateDict& state, const std::string& key) {
  for (const ShardedTensor& tensor : state.tensors) {
    if (tensor.key == key) return &tensor;
  }
  return nullptr;
}

TEST(ShardedState, KeysPlacesAndReplicas) {
  MegatronOptimizerOptions options;
  options.tp_rank = 1;
  options.rank = 3;
  const ParameterPtr w = parameter("layers.0.w", {2, 3}, at::kHalf), norm = parameter("norm", {3}),
                     tied = parameter("embedding", {2}, at::kHalf);
  w->tensor_parallel = true;
  w->global_shape = {4, 3};
  w->global_offset = {2, 0};
  tied->shared = true;
  tied->tensor_parallel = true;
  const auto optimizer = must(Float16OptimizerWithFloat16Params::create(adam({group_of({w, norm, tied})}),
                                                                        options, dynamic_scaler(4.0)));
  const ShardedStateDict before = must(optimizer->sharded_state_dict(false, {}));
  EXPECT_EQ(before.tensors.size(), 2u);  // main copies only
  const ShardedStateDict state = must(optimizer->sharded_state_dict(true, {"chained_1.", 0}));
  EXPECT_EQ(state.tensors.size(), 8u);
  const ShardedTensor* main = find(state, "chained_1.optimizer.state.fp32_param.layers.0.w");
  ASSERT_NE(main, nullptr);
  EXPECT_TRUE(main->data.is_alias_of(optimizer->get_parameters()[0]->value));  // a load writes into it
  EXPECT_EQ(main->global_shape, (Shape{4, 3}));
  EXPECT_EQ(main->offset, (Shape{2, 0}));
  EXPECT_EQ(main->local_shape, (Shape{2, 3}));
  EXPECT_FALSE(main->flattened);
  EXPECT_EQ(main->replica, 0);
  const ShardedTensor* moment = find(state, "chained_1.optimizer.state.exp_avg.norm");
  ASSERT_NE(moment, nullptr);
  EXPECT_EQ(moment->global_shape, (Shape{3}));
  EXPECT_EQ(moment->offset, (Shape{0}));
  EXPECT_NE(moment->replica, 0);                                                         // tp rank 0 saves it
  EXPECT_NE(find(state, "chained_1.optimizer.state.exp_avg_sq.embedding")->replica, 0);  // its first use does
  EXPECT_EQ(find(state, "chained_1.optimizer.state.fp32_param.norm"), nullptr);          // the model's own
  ASSERT_EQ(state.objects.size(), 3u);
  EXPECT_EQ(state.objects[0].key, "chained_1.optimizer.param_groups");
  EXPECT_EQ(state.objects[1].key, "chained_1.optimizer.state.common_step");
  EXPECT_EQ(*state.objects[1].value.get<std::int64_t>(), 0);  // upstream leaves a step of 0 out
  EXPECT_EQ(state.objects[2].key, "chained_1.optimizer.grad_scaler");
  EXPECT_EQ(state.objects[0].replica, 3);
  const ShardedStateDict replica = must(optimizer->sharded_state_dict(false, {"", 2}));
  for (const ShardedTensor& tensor : replica.tensors) EXPECT_NE(tensor.replica, 0);
}

// Tensors copied key by key, as a checkpoint does, then the objects.
TEST(ShardedState, RoundTripContinuesBitForBit) {
  Grouped one, two;
  one.train("a");
  one.train("b");
  two.copy_models(one);
  const ShardedStateDict saved = must(one.optimizer->sharded_state_dict(false, {}));
  const ShardedStateDict target = must(two.optimizer->sharded_state_dict(true, {}));
  ASSERT_EQ(saved.tensors.size(), target.tensors.size());
  for (const ShardedTensor& tensor : target.tensors) {
    const ShardedTensor* source = find(saved, tensor.key);
    ASSERT_NE(source, nullptr) << tensor.key;
    tensor.data.copy_(source->data);
  }
  one.optimizer->param_groups()[0]->lr = 0.5;
  must(two.optimizer->load_sharded_objects(must(one.optimizer->sharded_state_dict(false, {})).objects, {}));
  EXPECT_EQ(two.optimizer->param_groups()[0]->lr, 0.5);
  EXPECT_EQ(first_difference(StateValue(one.saved()), StateValue(two.saved())), "");
  one.train("c");
  two.train("c");
  EXPECT_EQ(first_difference(snapshot(*one.optimizer, one.models), snapshot(*two.optimizer, two.models)), "");
}

TEST(ShardedState, RefusesDifferentStepsAndMissingSettings) {
  Grouped grouped;
  grouped.train("a");
  grouped.optimizer->find_state(*grouped.main("b"))->step = 4;
  EXPECT_NE(message(grouped.optimizer->sharded_state_dict(false, {})).find("of 'b' 4"), std::string::npos)
      << message(grouped.optimizer->sharded_state_dict(false, {}));
  EXPECT_NE(message(grouped.optimizer->load_sharded_objects({}, {"x.", 0})).find("x.optimizer.param_groups"),
            std::string::npos);
}

TEST(OptimizerState, ParameterStateIsTheDistributedOptimizers) {
  Grouped grouped;
  EXPECT_FALSE(grouped.optimizer->has_parameter_state());
  EXPECT_EQ(grouped.optimizer->save_parameter_state().error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(grouped.optimizer->load_parameter_state({}, true).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace plumbline::test
