#include "engine/optim/wrapper_optimizer.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {

WrapperOptimizer::WrapperOptimizer(std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options,
                                   InitStateFn init_state)
    : MegatronOptimizer(std::move(options)), inner_(std::move(inner)), init_state_(std::move(init_state)) {
  PL_ASSERT(inner_ != nullptr);
  targets_.assign(inner_->parameters().size(), nullptr);
}

std::vector<ParamGroup*> WrapperOptimizer::param_groups() {
  std::vector<ParamGroup*> groups;
  for (ParamGroup& group : inner_->param_groups()) groups.push_back(&group);
  return groups;
}

at::Tensor WrapperOptimizer::main_grad(const Parameter& parameter) const {
  return inner_->options().precision_aware ? parameter.decoupled_grad : parameter.grad;
}

Status WrapperOptimizer::ready(const char* what) const {
  if (!offloaded_) return {};
  return fail(ErrorCode::kState,
              fmt::format("rank {}: {} while the optimizer's states are offloaded to the CPU; "
                          "call restore_from_cpu() first",
                          options_.rank, what));
}

Status WrapperOptimizer::update(float gradient_factor) {
  PL_TRY(ready("step"));
  inner_->step(gradient_factor, &targets_);
  return {};
}

Status WrapperOptimizer::finish_step(double norm) {
  return update(clip_coefficient(norm, options_.clip_grad));
}

Status WrapperOptimizer::step_with_ready_grads() {
  PL_TRY(update(1.0f));
  return sync_params();
}

void WrapperOptimizer::copy_main_to_model() {
  const at::NoGradGuard no_grad;
  const std::vector<ParameterPtr> mains = inner_->parameters();
  std::vector<at::Tensor> source, target;
  for (std::size_t i = 0; i < mains.size(); ++i) {
    if (targets_[i] == nullptr) continue;
    source.push_back(mains[i]->value);
    target.push_back(targets_[i]->value.detach());
  }
  const Status copied = multi_tensor_copy_this_to_that(source, target);
  PL_ASSERT_MSG(copied.has_value(), copied ? "" : copied.error().text());
}

void WrapperOptimizer::init_state() {
  if (init_state_) {
    init_state_(*inner_);
  } else {
    inner_->init_state();
  }
}

template <typename Visit>
void WrapperOptimizer::for_each_owned(Visit visit) {
  std::size_t position = 0;
  for (const ParameterPtr& parameter : inner_->parameters()) {
    const std::size_t at = position++;
    if (is_main_copy(at)) visit(at, parameter->value);
    ParamState* state = inner_->find_state(*parameter);
    if (state == nullptr) continue;
    for (at::Tensor* tensor :
         {&state->exp_avg, &state->exp_avg_sq, &state->momentum_buffer, &state->master_param}) {
      if (tensor->defined()) visit(at, *tensor);
    }
  }
}

Status WrapperOptimizer::offload_to_cpu() {
  if (offloaded_) return {};
  const at::NoGradGuard no_grad;
  homes_.clear();
  for (const ParameterPtr& parameter : inner_->parameters()) homes_.push_back(parameter->value.device());
  for_each_owned([](std::size_t, at::Tensor& tensor) {
    tensor = tensor.to(at::Device(at::kCPU), tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  });
  offloaded_ = true;
  return {};
}

Status WrapperOptimizer::restore_from_cpu() {
  if (!offloaded_) return {};
  const at::NoGradGuard no_grad;
  PL_ASSERT(homes_.size() == inner_->parameters().size());
  for_each_owned([this](std::size_t position, at::Tensor& tensor) {
    tensor = tensor.to(homes_[position], tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  });
  offloaded_ = false;
  return {};
}

}  // namespace plumbline
