// Small optimizers and ranks for the tests of public reports (tests/oracles/public_reports): parameters of a few
// elements, plain SGD with learning rate 1 from 0, so that a parameter is minus the sum of the gradients used.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/optim/base_optimizer.h"
#include "engine/optim/collective.h"
#include "engine/optim/float16_optimizer.h"
#include "engine/optim/fp32_optimizer.h"

namespace plumbline::test {

inline at::Tensor floats(const std::vector<float>& values) { return at::tensor(values, at::kFloat); }

inline std::vector<double> values_of(const at::Tensor& tensor) {
  std::vector<double> out;
  const at::Tensor flat = tensor.to(at::kDouble).reshape({-1});
  for (std::int64_t i = 0; i < flat.numel(); ++i) out.push_back(flat[i].item<double>());
  return out;
}

inline ParameterPtr parameter(const std::string& name, const at::Tensor& value) {
  auto made = std::make_shared<Parameter>();
  made->name = name;
  made->value = value;
  return made;
}

inline std::unique_ptr<BaseOptimizer> sgd(std::vector<ParameterPtr> params, double lr = 1.0) {
  ParamGroup group;
  group.params = std::move(params);
  group.lr = lr;
  BaseOptimizerOptions options;
  options.rule = BaseOptimizerOptions::Rule::kSgd;
  std::vector<ParamGroup> groups;
  groups.push_back(std::move(group));
  return std::make_unique<BaseOptimizer>(std::move(groups), options);
}

template <typename T>
T value_of(Result<T> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().text());
  return result ? std::move(*result) : T{};
}

// No clipping, no norm unless a test asks.
inline MegatronOptimizerOptions plain_options(double clip = 0.0) {
  MegatronOptimizerOptions options;
  options.clip_grad = clip;
  options.log_norm = clip > 0.0;
  return options;
}

// One 16-bit parameter of one element under a scaler; its gradient comes in through main_grad, as from a gradient
// buffer.
struct HalfRank {
  HalfRank(const LossScaler& scaler, MegatronOptimizerOptions options, std::vector<float> start = {0.0f},
           at::ScalarType type = at::kHalf) {
    model = parameter("w", floats(start).to(type));
    model->main_grad = at::zeros({static_cast<std::int64_t>(start.size())}, at::kFloat);
    optimizer = value_of(Float16OptimizerWithFloat16Params::create(sgd({model}), std::move(options), scaler));
  }
  // Adds scaled true gradients to the buffer.
  void backward(const std::vector<float>& gradient) {
    const at::Tensor scale = optimizer->scale_loss(at::ones({1}));
    model->main_grad.add_(floats(gradient) * scale);
  }
  // What the data-parallel wrapper does at the begin of a step.
  void clear() {
    model->main_grad.zero_();
    optimizer->zero_grad();
  }
  double main() const { return values_of(optimizer->get_parameters().front()->value).front(); }
  const LossScaler& scaler() const { return *optimizer->scaler(); }

  ParameterPtr model;
  std::unique_ptr<Float16OptimizerWithFloat16Params> optimizer;
};

// body(rank, its membership) on a thread each. EXPECT_ is fine in there, ASSERT_ is not.
inline void on_ranks(int ranks, const std::function<void(int, std::shared_ptr<Collective>)>& body) {
  const std::vector<std::shared_ptr<Collective>> group = thread_group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { body(rank, group[static_cast<std::size_t>(rank)]); });
  }
  for (std::thread& thread : threads) thread.join();
}

inline LossScaler dynamic_scaler(const LossScaler::Dynamic& options) {
  return value_of(LossScaler::dynamic(options));
}

}  // namespace plumbline::test
