// What a chain saves and loads.
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/optim/proxy_dict.h"
#include "tests/engine/optim/chain_support.h"

namespace plumbline::test {
namespace {

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
