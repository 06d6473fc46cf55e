// Small models and their optimizers for tests: parameters with values and gradients from seeds, snapshots of
// everything an optimizer knows, and ranks as threads.
#pragma once

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "engine/optim/chained_optimizer.h"
#include "engine/optim/float16_optimizer.h"
#include "engine/optim/fp32_optimizer.h"

namespace plumbline::test {

using Shape = std::vector<std::int64_t>;

inline at::Tensor random_tensor(const Shape& shape, const std::string& name, double size = 1.0,
                                at::ScalarType type = at::kFloat) {
  at::Tensor out = at::empty(shape, at::kFloat);
  const CounterRng rng(7, name);
  float* data = out.data_ptr<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    data[i] = static_cast<float>(size * rng.normal(static_cast<std::uint64_t>(i)));
  }
  return out.to(type);
}

inline ParameterPtr parameter(const std::string& name, const Shape& shape, at::ScalarType type = at::kFloat) {
  auto made = std::make_shared<Parameter>();
  made->name = name;
  made->value = random_tensor(shape, name, 1.0, type);
  made->value.requires_grad_(true);
  return made;
}

// One value for all elements.
inline at::Tensor filled(const ParameterPtr& parameter, double value, at::ScalarType type = at::kFloat) {
  return at::full(parameter->value.sizes(), value, at::dtype(type));
}

inline ParamGroup group_of(std::vector<ParameterPtr> params, double lr = 1e-2, double weight_decay = 0.1) {
  ParamGroup group;
  group.params = std::move(params);
  group.lr = lr;
  group.weight_decay = weight_decay;
  return group;
}

inline std::unique_ptr<BaseOptimizer> adam(std::vector<ParamGroup> groups,
                                           BaseOptimizerOptions options = {}) {
  return std::make_unique<BaseOptimizer>(std::move(groups), options);
}

inline LossScaler dynamic_scaler(double initial, int window = 1000, int hysteresis = 1) {
  LossScaler::Dynamic options;
  options.initial = initial;
  options.window = window;
  options.hysteresis = hysteresis;
  return *LossScaler::dynamic(options);
}

// The value of a Result, or a failed test with its message.
template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text());
  return std::move(*result);
}
inline void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().text());
}
template <typename T>
std::string message(const Result<T>& result) {
  return result ? "no error" : result.error().message;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

// Everything that must not change in a skipped step: parameters of the model, main copies, moments, step
// counts, settings - not the scaler.
inline StateValue snapshot(MegatronOptimizer& optimizer, const std::vector<ParameterPtr>& models) {
  StateDict all;
  StateList values;
  for (const ParameterPtr& model : models) values.emplace_back(model->value.detach());
  all["models"] = std::move(values);
  StateDict state = optimizer.state_dict();
  const std::function<void(StateDict&)> without_scaler = [&](StateDict& dict) {
    dict.erase("grad_scaler");
    for (auto& [key, value] : dict) {
      if (auto* inner = value.get<StateDict>()) without_scaler(*inner);
    }
  };
  without_scaler(state);
  all["optimizer"] = std::move(state);
  return clone(StateValue(std::move(all)));
}

// Runs `rank(index)` on a thread for every rank; the first rank's exception is thrown on.
inline void on_ranks(int ranks, const std::function<void(int)>& rank) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        rank(r);
      } catch (...) {
        thrown[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : thrown) {
    if (one) std::rethrow_exception(one);
  }
}

}  // namespace plumbline::test
