#include "engine/optim/hybrid_sync.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "engine/optim/chained_optimizer.h"
#include "engine/optim/hybrid_device_optimizer.h"
#include "engine/optim/setup.h"
#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

struct Training {
  std::vector<ParameterPtr> models;
  OptimizerAndScheduler made;

  std::vector<at::Tensor> masters() const {
    std::vector<at::Tensor> out;
    for (const ParameterPtr& main : made.optimizer->get_parameters()) out.push_back(main->value.clone());
    return out;
  }
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> out;
    for (const ParameterPtr& model : models) out.push_back(model->value.detach().clone());
    return out;
  }
  void step(double size) {
    float shift = 0.0f;
    for (const ParameterPtr& model : models) {
      const at::Tensor gradient = at::cos(at::arange(model->numel(), at::kFloat) + shift++).mul(size);
      if (model->main_grad.defined()) {
        model->main_grad.copy_(gradient.reshape(model->main_grad.sizes()));
      } else {
        model->main_grad = gradient;
      }
    }
    EXPECT_TRUE(value_of(made.optimizer->step()).success);
    made.optimizer->zero_grad();
  }
};

// bf16 parameters; `start` makes different initial values, as a fresh random initialisation does.
Training make_training(bool distributed, double fraction, float start, double lr = 0.01) {
  RunConfig config;
  config.train.precision = Precision::kBf16;
  config.optimizer.distributed = distributed;
  config.optimizer.cpu_offload = fraction >= 0.0;
  config.optimizer.offload_fraction = std::max(fraction, 0.0);
  config.optimizer.lr = lr;
  config.optimizer.weight_decay = 0.0;
  Training run;
  for (int i = 0; i < 3; ++i) {
    run.models.push_back(parameter(
        "w" + std::to_string(i), at::sin(at::arange(40, at::kFloat) * 0.37f + start + i).to(at::kBFloat16)));
  }
  OptimizerInputs inputs;
  inputs.optimizer = OptimizerSettings::of(config);
  inputs.scheduler = value_of(SchedulerSettings::of(config));
  inputs.chunks = {run.models};
  run.made = value_of(setup_optimizer(std::move(inputs)));
  return run;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, bool equal = true) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].equal(b[i]), equal) << i;
}

void load_weights(Training& run, const std::vector<at::Tensor>& weights) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < weights.size(); ++i) run.models[i]->value.copy_(weights[i]);
}

// The stale-master fault: weights loaded, masters still those of the initial values; the first step writes them back.
// With the sync, a step with learning rate 0 leaves the loaded weights as they are.
TEST(HybridSync, LoadedWeightsSurviveAStepWithLearningRateZero) {
  for (const bool distributed : {true, false}) {
    for (const double fraction : {0.0, 0.5, 1.0}) {
      Training trained = make_training(distributed, fraction, 0.0f);
      for (int step = 0; step < 3; ++step) trained.step(1.0);
      const auto weights = trained.weights();

      Training fresh = make_training(distributed, fraction, 1.0f, 0.0);
      load_weights(fresh, weights);
      EXPECT_TRUE(value_of(
          sync_hybrid_device_optimizer_fp32_master_copies(fresh.made.optimizer.get(), Loaded::kWeightsOnly)));
      fresh.step(1.0);
      expect_equal(fresh.weights(), weights);

      Training stale = make_training(distributed, fraction, 1.0f, 0.0);
      load_weights(stale, weights);
      stale.step(1.0);
      expect_equal(stale.weights(), weights, false);
    }
  }
}

// A full resume: masters come with the checkpoint and have bits that the weights have not.
TEST(HybridSync, OnlyAfterAWeightsOnlyLoad) {
  Training trained = make_training(true, 0.5, 0.0f);
  for (int step = 0; step < 3; ++step) trained.step(1.0);
  const auto masters = trained.masters();
  MegatronOptimizer& optimizer = *trained.made.optimizer;
  EXPECT_FALSE(
      value_of(sync_hybrid_device_optimizer_fp32_master_copies(&optimizer, Loaded::kWeightsAndOptimizer)));
  expect_equal(trained.masters(), masters);
  // What upstream does after every load: the bits are gone.
  EXPECT_TRUE(value_of(sync_hybrid_device_optimizer_fp32_master_copies(&optimizer, Loaded::kWeightsOnly)));
  expect_equal(trained.masters(), masters, false);
  std::vector<at::Tensor> rounded;
  for (const at::Tensor& master : masters) rounded.push_back(master.to(at::kBFloat16).to(at::kFloat));
  expect_equal(trained.masters(), rounded);
}

TEST(HybridSync, NothingToDoWithoutOffload) {
  EXPECT_FALSE(value_of(sync_hybrid_device_optimizer_fp32_master_copies(nullptr, Loaded::kWeightsOnly)));
  for (const bool distributed : {true, false}) {
    Training run = make_training(distributed, -1.0, 0.0f);
    for (int step = 0; step < 2; ++step) run.step(1.0);
    const auto masters = run.masters();
    EXPECT_FALSE(value_of(
        sync_hybrid_device_optimizer_fp32_master_copies(run.made.optimizer.get(), Loaded::kWeightsOnly)));
    expect_equal(run.masters(), masters);
  }
}

}  // namespace
}  // namespace plumbline::test
