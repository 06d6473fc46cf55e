#include "engine/optim/state_loading.h"

#include <gtest/gtest.h>

#include "engine/optim/chained_optimizer.h"
#include "tests/engine/optim/family_l.h"
#include "tests/support/counted_memory.h"

namespace plumbline::test {
namespace {

constexpr std::int64_t kElements = 40'000;
constexpr std::int64_t kMoments = 2 * 2 * kElements * 4;  // of two parameters, in bytes

std::vector<ParameterPtr> two_parameters(at::ScalarType type = at::kFloat) {
  std::vector<ParameterPtr> params;
  for (int i = 0; i < 2; ++i) {
    params.push_back(
        parameter("w" + std::to_string(i), at::arange(kElements, at::kFloat).mul(1e-3 + i).to(type)));
    params.back()->main_grad = at::sin(at::arange(kElements, at::kFloat) + i);
  }
  return params;
}

std::unique_ptr<BaseOptimizer> adam(const std::vector<ParameterPtr>& params,
                                    BaseOptimizerOptions options = {}) {
  ParamGroup group;
  group.params = params;
  group.lr = 0.01;
  std::vector<ParamGroup> groups;
  groups.push_back(std::move(group));
  return std::make_unique<BaseOptimizer>(std::move(groups), options);
}

std::unique_ptr<FP32Optimizer> fp32(const std::vector<ParameterPtr>& params) {
  return value_of(FP32Optimizer::create(adam(params), plain_options()));
}

// The state of an optimizer that has made three steps, in memory of its own.
StateDict trained_state(const std::vector<ParameterPtr>& params) {
  const auto optimizer = fp32(params);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(value_of(optimizer->step()).success);
  return *clone(StateValue(optimizer->state_dict())).get<StateDict>();
}

TEST(StateLoading, AdoptsInsteadOfCopying) {
  for (const bool efficient : {false, true}) {
    for (const bool has_states : {false, true}) {
      const auto params = two_parameters();
      StateDict state = trained_state(params);
      const StateValue expected = clone(StateValue(state));
      const auto optimizer = fp32(two_parameters());
      std::int64_t peak = 0, held = 0;
      {
        MemoryEfficientLoading scope(efficient ? optimizer.get() : nullptr);
        EXPECT_EQ(scope.changed(), efficient ? 1 : 0);
        const CountedMemory memory;  // frees of older blocks are not counted, hence before init_state
        if (has_states) optimizer->init_state();
        const std::int64_t before = memory.held();
        EXPECT_EQ(before, has_states ? kMoments : 0);
        const Status loaded = optimizer->load_state_dict(state);
        ASSERT_TRUE(loaded) << loaded.error().text();
        peak = memory.peak() - before;
        held = memory.held() - before;
      }
      // Copying needs memory for the moments beside the loaded ones, which are still there.
      const std::int64_t copy = has_states ? 0 : kMoments;
      EXPECT_GE(peak, efficient ? 0 : copy);
      EXPECT_LT(peak, (efficient ? 0 : copy) + 4096)
          << "efficient " << efficient << ", states " << has_states;
      // Adopting gives the optimizer's own moments back.
      EXPECT_LE(std::abs(held - (efficient ? (has_states ? -kMoments : 0) : copy)), 4096);
      EXPECT_EQ(first_difference(StateValue(optimizer->state_dict()), expected), "");
      state = StateDict();  // what was adopted lives on
      EXPECT_EQ(first_difference(StateValue(optimizer->state_dict()), expected), "");
    }
  }
}

// Peak over the whole of a resume: from nothing, through the loaded dictionary, to a loaded optimizer.
TEST(StateLoading, NoSecondCopyOfTheMomentsExistsAtAnyTime) {
  const StateDict saved = trained_state(two_parameters());
  std::array<std::int64_t, 2> peaks{};
  for (const bool efficient : {false, true}) {
    const auto optimizer = fp32(two_parameters());
    const CountedMemory memory;
    MemoryEfficientLoading scope(efficient ? optimizer.get() : nullptr);
    const StateValue read = clone(StateValue(saved));  // what a reader of files hands over
    ASSERT_TRUE(optimizer->load_state_dict(*read.get<StateDict>()));
    peaks[efficient ? 1 : 0] = memory.peak();
  }
  EXPECT_LT(peaks[1], kMoments + 4096);
  EXPECT_GE(peaks[0], 2 * kMoments);
}

TEST(StateLoading, TheNextStepIsTheSameEitherWay) {
  const StateDict state = trained_state(two_parameters());
  std::vector<StateValue> results;
  for (const bool efficient : {false, true}) {
    const auto params = two_parameters();
    const auto optimizer = fp32(params);
    {
      MemoryEfficientLoading scope(efficient ? optimizer.get() : nullptr);
      ASSERT_TRUE(optimizer->load_state_dict(*clone(StateValue(state)).get<StateDict>()));
    }
    ASSERT_TRUE(value_of(optimizer->step()).success);
    results.push_back(clone(StateValue(optimizer->state_dict())));
    results.back().get<StateDict>()->operator[]("w") = params[1]->value;
  }
  EXPECT_EQ(first_difference(results[0], results[1]), "");
}

TEST(StateLoading, UndoneAfterTheScopeAndAfterAnError) {
  const auto optimizer = fp32(two_parameters());
  const StateDict state = trained_state(two_parameters());
  const auto load_badly = [&]() -> Status {
    MemoryEfficientLoading scope(optimizer.get());
    EXPECT_EQ(scope.changed(), 1);
    EXPECT_TRUE(optimizer->inner().adopts_loaded_tensors());
    MemoryEfficientLoading nested(optimizer.get());
    EXPECT_EQ(nested.changed(), 0);
    StateDict bad = state;
    bad.erase("param_groups");
    PL_TRY(optimizer->load_state_dict(bad));
    return {};
  };
  EXPECT_FALSE(load_badly());
  EXPECT_FALSE(optimizer->inner().adopts_loaded_tensors());
  EXPECT_EQ(optimizer->inner().states(), 0u);
  ASSERT_TRUE(optimizer->load_state_dict(state));
  const auto* loaded = state.at("state").get<StateDict>()->at("0").get<StateDict>();
  const at::Tensor moment = *loaded->at("exp_avg").get<at::Tensor>();
  EXPECT_FALSE(optimizer->find_state(*optimizer->get_parameters()[0])->exp_avg.is_same(moment));
}

TEST(StateLoading, OnlyPlainFp32AdamIsChanged) {
  const auto changed = [](std::unique_ptr<BaseOptimizer> inner) {
    const auto optimizer = value_of(FP32Optimizer::create(std::move(inner), plain_options()));
    return MemoryEfficientLoading(optimizer.get()).changed();
  };
  const auto params = two_parameters();
  EXPECT_EQ(changed(adam(params)), 1);
  EXPECT_EQ(changed(sgd(params)), 0);
  EXPECT_EQ(changed(adam({})), 0);
  BaseOptimizerOptions moments;
  moments.exp_avg_type = DType::kBF16;
  EXPECT_EQ(changed(adam(params, moments)), 0);
  BaseOptimizerOptions aware;
  aware.precision_aware = true;
  EXPECT_EQ(changed(adam(params, aware)), 0);
  const auto offloaded = fp32(params);
  ASSERT_TRUE(offloaded->offload_to_cpu());
  EXPECT_EQ(MemoryEfficientLoading(offloaded.get()).changed(), 0);
  EXPECT_EQ(MemoryEfficientLoading(nullptr).changed(), 0);

  // Main copies of 16-bit parameters are fp32; a chain counts its members.
  std::vector<std::unique_ptr<MegatronOptimizer>> members;
  for (int i = 0; i < 2; ++i) {
    members.push_back(value_of(Float16OptimizerWithFloat16Params::create(adam(two_parameters(at::kBFloat16)),
                                                                         plain_options(), LossScaler{})));
  }
  const auto chain = value_of(ChainedOptimizer::create(plain_options(), std::move(members)));
  EXPECT_EQ(MemoryEfficientLoading(chain.get()).changed(), 2);
}

TEST(StateLoading, SharedMemoryIsCopiedNotAdopted) {
  StateDict state = trained_state(two_parameters());
  StateDict& states = *state["state"].get<StateDict>();
  StateDict &first = *states["0"].get<StateDict>(), &second = *states["1"].get<StateDict>();
  const at::Tensor both = *first["exp_avg"].get<at::Tensor>();
  second["exp_avg"] = both;  // one tensor for two parameters
  const at::Tensor whole = at::rand({2 * kElements});
  first["exp_avg_sq"] = whole.narrow(0, 0, kElements);  // part of a larger one
  const auto optimizer = fp32(two_parameters());
  {
    MemoryEfficientLoading scope(optimizer.get());
    ASSERT_TRUE(optimizer->load_state_dict(state));
  }
  const auto params = optimizer->get_parameters();
  const ParamState &a = *optimizer->find_state(*params[0]), &b = *optimizer->find_state(*params[1]);
  EXPECT_TRUE(a.exp_avg.equal(both));
  EXPECT_FALSE(a.exp_avg.is_alias_of(b.exp_avg));
  EXPECT_FALSE(a.exp_avg.is_alias_of(both));
  EXPECT_FALSE(a.exp_avg_sq.is_alias_of(whole));
  EXPECT_TRUE(b.exp_avg_sq.is_same(*second["exp_avg_sq"].get<at::Tensor>()));
}

TEST(StateLoading, StateOfFp32Adam) {
  const StateDict good = trained_state(two_parameters());
  EXPECT_TRUE(optimizer_state_is_fp32_adam(good));
  const auto changed = [&](const char* key, StateValue value) {
    StateDict state = *clone(StateValue(good)).get<StateDict>();
    (*(*state["state"].get<StateDict>())["1"].get<StateDict>())[key] = std::move(value);
    return optimizer_state_is_fp32_adam(state);
  };
  EXPECT_TRUE(changed("step", at::ones({1})));
  EXPECT_FALSE(changed("step", "three"));
  EXPECT_FALSE(changed("exp_avg", at::ones({2}, at::kBFloat16)));
  EXPECT_FALSE(changed("exp_avg_sq", StateValue()));
  EXPECT_FALSE(changed("momentum_buffer", at::ones({2})));
  EXPECT_FALSE(optimizer_state_is_fp32_adam(StateDict{{"state", StateDict{}}}));
  EXPECT_FALSE(optimizer_state_is_fp32_adam(StateDict{}));
  EXPECT_FALSE(optimizer_state_is_fp32_adam(StateDict{{"state", 3}}));
  StateDict missing = *clone(StateValue(good)).get<StateDict>();
  (*missing["state"].get<StateDict>())["0"].get<StateDict>()->erase("exp_avg");
  EXPECT_FALSE(optimizer_state_is_fp32_adam(missing));
}

}  // namespace
}  // namespace plumbline::test
