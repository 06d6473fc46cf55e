#include "engine/optim/base_optimizer.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "engine/base/assert.h"
#include "engine/model/tensors.h"
#include "engine/optim/kernels.h"
#include "engine/optim/megatron_optimizer.h"

namespace plumbline {
namespace {

bool has_precision(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// What the kernels on raw memory take.
bool dense_on_cpu(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         has_precision(tensor);
}

bool plain_floats(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; }

// Rounds once; `target` keeps its type and storage.
void store(const at::Tensor& fp32, const at::Tensor& target) { target.copy_(fp32); }

void check_sizes(const Parameter& parameter, const at::Tensor& gradient, const Parameter* model) {
  PL_ASSERT_MSG(gradient.sizes() == parameter.value.sizes(), "gradient of " + parameter.name);
  PL_ASSERT_MSG(model == nullptr || model->numel() == parameter.numel(), "model parameter " + parameter.name);
}

// The same rule in LibTorch's operations, one rounding each, in the kernel's order.
void plain_adam(const kernels::AdamUpdate& update, const at::Tensor& gradient, Parameter& parameter,
                ParamState& state) {
  const double step = static_cast<double>(update.step);
  const double correct1 = 1.0 - std::pow(update.beta1, step);
  const double correct2 = 1.0 - std::pow(update.beta2, step);
  at::Tensor p = parameter.value.to(at::kFloat);
  at::Tensor g = gradient.to(at::kFloat) * update.gradient_factor;
  if (!update.decoupled) g = g + p * update.weight_decay;
  const at::Tensor m = state.exp_avg.to(at::kFloat) * update.beta1 + g * (1.0 - update.beta1);
  const at::Tensor v = state.exp_avg_sq.to(at::kFloat) * update.beta2 + g * (1.0 - update.beta2) * g;
  if (update.decoupled) p = p * (1.0 - update.lr * update.weight_decay);
  const at::Tensor size = v.sqrt() * (1.0 / std::sqrt(correct2)) + update.eps;
  store(p - m * (update.lr / correct1) / size, parameter.value);
  store(m, state.exp_avg);
  store(v, state.exp_avg_sq);
}

void adam_step(const kernels::AdamUpdate& update, const at::Tensor& gradient, Parameter& parameter,
               ParamState& state, Parameter* model) {
  bool dense = dense_on_cpu(gradient) && dense_on_cpu(parameter.value) && dense_on_cpu(state.exp_avg) &&
               dense_on_cpu(state.exp_avg_sq);
  if (model != nullptr) dense = dense && dense_on_cpu(model->value);
  if (!dense) {
    plain_adam(update, gradient, parameter, state);
    if (model != nullptr) store(parameter.value.view_as(model->value), model->value);
    return;
  }
  kernels::AdamArrays arrays;
  arrays.count = static_cast<std::size_t>(parameter.numel());
  arrays.gradient = gradient.data_ptr();
  arrays.gradient_type = dtype_of(gradient.scalar_type());
  arrays.parameter = parameter.value.data_ptr();
  arrays.parameter_type = dtype_of(parameter.value.scalar_type());
  arrays.first = state.exp_avg.data_ptr();
  arrays.first_type = dtype_of(state.exp_avg.scalar_type());
  arrays.second = state.exp_avg_sq.data_ptr();
  arrays.second_type = dtype_of(state.exp_avg_sq.scalar_type());
  if (model != nullptr) {
    arrays.model = model->value.data_ptr();
    arrays.model_type = dtype_of(model->value.scalar_type());
  }
  if (arrays.count > 0) kernels::adam(update, arrays);
}

void plain_sgd(const kernels::SgdUpdate& update, const at::Tensor& gradient, Parameter& parameter,
               const at::Tensor& buffer) {
  const at::Tensor p = parameter.value.to(at::kFloat);
  at::Tensor g = gradient.to(at::kFloat) * update.gradient_factor;
  g = g + p * update.weight_decay;
  if (buffer.defined()) {
    if (!update.first_step) g = buffer.to(at::kFloat) * update.momentum + g;
    store(g, buffer);
  }
  store(p - g * update.lr, parameter.value);
}

void sgd_step(const kernels::SgdUpdate& update, const at::Tensor& gradient, Parameter& parameter,
              const at::Tensor& buffer, Parameter* model) {
  const auto fits = [](const at::Tensor& tensor) { return dense_on_cpu(tensor) && plain_floats(tensor); };
  bool dense = fits(gradient) && fits(parameter.value) && (!buffer.defined() || fits(buffer));
  if (model != nullptr) dense = dense && dense_on_cpu(model->value);
  if (!dense) {
    plain_sgd(update, gradient, parameter, buffer);
    if (model != nullptr) store(parameter.value.view_as(model->value), model->value);
    return;
  }
  const auto count = static_cast<std::size_t>(parameter.numel());
  if (count == 0) return;
  kernels::sgd(update, count, gradient.data_ptr<float>(), parameter.value.data_ptr<float>(),
               buffer.defined() ? buffer.data_ptr<float>() : nullptr,
               model == nullptr ? nullptr : model->value.data_ptr(),
               model == nullptr ? DType::kF32 : dtype_of(model->value.scalar_type()));
}

at::Tensor zeros_like(const at::Tensor& value, DType type) {
  return at::zeros(value.sizes(), value.options().dtype(scalar_type_of(type)).requires_grad(false));
}

kernels::AdamUpdate adam_update(const ParamGroup& group, const BaseOptimizerOptions& options, float factor) {
  kernels::AdamUpdate update;
  update.lr = group.lr;
  update.beta1 = group.beta1;
  update.beta2 = group.beta2;
  update.eps = group.eps;
  update.weight_decay = group.weight_decay;
  update.decoupled = options.decoupled_weight_decay;
  update.gradient_factor = factor;
  return update;
}

kernels::SgdUpdate sgd_update(const ParamGroup& group, float factor) {
  kernels::SgdUpdate update;
  update.lr = group.lr;
  update.momentum = group.momentum;
  update.weight_decay = group.weight_decay;
  update.gradient_factor = factor;
  return update;
}

}  // namespace

BaseOptimizer::BaseOptimizer(std::vector<ParamGroup> groups, BaseOptimizerOptions options)
    : groups_(std::move(groups)), options_(options) {}

ParamState* BaseOptimizer::find_state(const Parameter& parameter) {
  const auto found = state_.find(&parameter);
  return found == state_.end() ? nullptr : &found->second;
}

ParamState& BaseOptimizer::state(const Parameter& parameter) {
  const auto [found, added] = state_.try_emplace(&parameter);
  if (added && options_.rule == BaseOptimizerOptions::Rule::kAdam) {
    found->second.exp_avg = zeros_like(parameter.value, options_.exp_avg_type);
    found->second.exp_avg_sq = zeros_like(parameter.value, options_.exp_avg_sq_type);
  }
  return found->second;
}

void BaseOptimizer::erase_state(const Parameter& parameter) { state_.erase(&parameter); }

void BaseOptimizer::move_state(const Parameter& from, const Parameter& to) {
  auto node = state_.extract(&from);
  if (node.empty()) return;
  node.key() = &to;
  state_.insert(std::move(node));
}

std::vector<ParameterPtr> BaseOptimizer::parameters() const {
  std::vector<ParameterPtr> all;
  for (const ParamGroup& group : groups_) all.insert(all.end(), group.params.begin(), group.params.end());
  return all;
}

void BaseOptimizer::step(float gradient_factor, const std::vector<Parameter*>* model) {
  const at::NoGradGuard no_grad;
  std::size_t position = 0;
  for (ParamGroup& group : groups_) {
    if (group.step) ++*group.step;
    kernels::AdamUpdate adam = adam_update(group, options_, gradient_factor);
    kernels::SgdUpdate sgd = sgd_update(group, gradient_factor);
    for (const ParameterPtr& parameter : group.params) {
      PL_ASSERT(model == nullptr || position < model->size());
      Parameter* target = model == nullptr ? nullptr : (*model)[position];
      ++position;
      const at::Tensor gradient = options_.precision_aware ? parameter->decoupled_grad : parameter->grad;
      if (!gradient.defined()) continue;
      check_sizes(*parameter, gradient, target);
      if (options_.rule == BaseOptimizerOptions::Rule::kAdam) {
        ParamState& own = state(*parameter);
        own.step = group.step ? *group.step : own.step + 1;
        adam.step = own.step;
        adam_step(adam, gradient, *parameter, own, target);
        continue;
      }
      at::Tensor buffer;
      if (group.momentum != 0.0) {
        ParamState& own = state(*parameter);
        sgd.first_step = !own.momentum_buffer.defined();
        if (sgd.first_step) own.momentum_buffer = zeros_like(parameter->value, DType::kF32);
        buffer = own.momentum_buffer;
      }
      sgd_step(sgd, gradient, *parameter, buffer, target);
    }
  }
}

void BaseOptimizer::zero_grad(bool set_to_none) {
  for (const ParamGroup& group : groups_) {
    zero_grad_group_helper(group.params, set_to_none, options_.precision_aware);
  }
}

void BaseOptimizer::init_state() {
  for (const ParamGroup& group : groups_) {
    for (const ParameterPtr& parameter : group.params) {
      if (options_.rule == BaseOptimizerOptions::Rule::kAdam) {
        state(*parameter);
      } else if (group.momentum != 0.0) {
        ParamState& own = state(*parameter);
        if (!own.momentum_buffer.defined()) own.momentum_buffer = zeros_like(parameter->value, DType::kF32);
      }
    }
  }
}

}  // namespace plumbline
