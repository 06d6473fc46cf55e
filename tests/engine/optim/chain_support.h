// A chain of a dense and an expert optimizer, both fp16, for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/optim/optimizer_support.h"

namespace plumbline::test {

// Null: alone. Without a decision group it is the members' shared one.
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

}  // namespace plumbline::test
