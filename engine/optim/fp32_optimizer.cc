#include "engine/optim/fp32_optimizer.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace plumbline {

Result<std::unique_ptr<FP32Optimizer>> FP32Optimizer::create(std::unique_ptr<BaseOptimizer> inner,
                                                             MegatronOptimizerOptions options,
                                                             InitStateFn init_state) {
  PL_TRY(check_megatron_options(options));
  for (const ParameterPtr& parameter : inner->parameters()) {
    if (parameter->value.scalar_type() == at::kFloat) continue;
    return fail(ErrorCode::kConfig,
                fmt::format("parameter '{}' is {}; the fp32 optimizer takes fp32 parameters only, use the "
                            "Float16 optimizer for fp16 and bf16",
                            parameter->name, describe(StateValue(parameter->value))));
  }
  return std::unique_ptr<FP32Optimizer>(
      new FP32Optimizer(std::move(inner), std::move(options), std::move(init_state)));
}

void FP32Optimizer::copy_model_grads_to_main_grads() {
  for (const ParameterPtr& parameter : get_parameters()) {
    if (parameter->main_grad.defined()) parameter->grad = parameter->main_grad;
  }
}

Result<bool> FP32Optimizer::unscale_local() {
  PL_TRY(ready("unscaling gradients"));
  return false;
}

void FP32Optimizer::zero_grad(bool set_to_none) {
  forget_recorded_scale();
  for (const ParamGroup& group : inner_->param_groups()) zero_grad_group_helper(group.params, set_to_none);
}

at::Tensor FP32Optimizer::get_loss_scale() const { return loss_scale_tensor(1.0f); }

Status FP32Optimizer::reload_model_params(const StateDict* state) {
  if (state == nullptr) return {};  // the model's parameters are the optimizer's
  return fail(
      ErrorCode::kUnsupported,
      "reload_model_params with a state dict: the fp32 optimizer keeps no main copies to fill from it; load "
      "it into the model");
}

StateDict FP32Optimizer::state_dict(bool is_loading) {
  if (is_loading) init_state();
  return inner_->state_dict();
}

Status FP32Optimizer::load_state_dict(const StateDict& state) {
  const Result<InnerState> matched = match_inner_state(state);
  if (!matched) return tl::unexpected(matched.error());
  notices_.clear();
  return inner_->load_state_dict(matched->state);
}

}  // namespace plumbline
