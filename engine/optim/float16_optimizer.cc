#include "engine/optim/float16_optimizer.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/optim/aliases.h"

namespace plumbline {
namespace {

bool is_16_bit(const Parameter& parameter) {
  return parameter.value.scalar_type() == at::kHalf || parameter.value.scalar_type() == at::kBFloat16;
}

// Everything of the model's parameter but its tensors.
ParameterPtr main_copy(const Parameter& model) {
  auto main = std::make_shared<Parameter>(model);
  main->value = model.value.detach().to(at::kFloat, /*non_blocking=*/false, /*copy=*/true,
                                        at::MemoryFormat::Contiguous);
  main->grad.reset();
  main->main_grad.reset();
  main->decoupled_grad.reset();
  return main;
}

}  // namespace

Result<std::unique_ptr<Float16OptimizerWithFloat16Params>> Float16OptimizerWithFloat16Params::create(
    std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options, LossScaler scaler,
    InitStateFn init_state) {
  PL_TRY(check_megatron_options(options));
  PL_TRY(check_scaler(scaler, inner->parameters()));
  if (inner->options().precision_aware) {
    return fail(
        ErrorCode::kConfig,
        "the Float16 optimizer feeds fp32 gradients; precision-aware states need the distributed optimizer");
  }
  for (const ParameterPtr& parameter : inner->parameters()) {
    if (is_16_bit(*parameter) || parameter->value.scalar_type() == at::kFloat) continue;
    return fail(
        ErrorCode::kConfig,
        fmt::format("parameter '{}' is {}; parameters of the Float16 optimizer are fp16, bf16 or fp32",
                    parameter->name, describe(StateValue(parameter->value))));
  }
  return std::unique_ptr<Float16OptimizerWithFloat16Params>(new Float16OptimizerWithFloat16Params(
      std::move(inner), std::move(options), scaler, std::move(init_state)));
}

Float16OptimizerWithFloat16Params::Float16OptimizerWithFloat16Params(std::unique_ptr<BaseOptimizer> inner,
                                                                     MegatronOptimizerOptions options,
                                                                     LossScaler scaler,
                                                                     InitStateFn init_state)
    : MixedPrecisionOptimizer(std::move(inner), std::move(options), scaler, std::move(init_state)) {
  const at::NoGradGuard no_grad;
  std::size_t position = 0;
  for (ParamGroup& group : inner_->param_groups()) {
    auto& halves = float16_groups_.emplace_back();
    auto& mains = fp32_from_float16_groups_.emplace_back();
    auto& native = fp32_from_fp32_groups_.emplace_back();
    for (ParameterPtr& parameter : group.params) {
      const std::size_t at = position++;
      if (!is_16_bit(*parameter)) {
        native.push_back(parameter);
        continue;
      }
      halves.push_back(parameter);
      targets_[at] = parameter.get();
      mains.push_back(main_copy(*parameter));
      inner_->move_state(*parameter, *mains.back());
      parameter = mains.back();
    }
  }
}

template <typename Visit>
void Float16OptimizerWithFloat16Params::for_each_pair(Visit visit) const {
  for (std::size_t g = 0; g < float16_groups_.size(); ++g) {
    for (std::size_t i = 0; i < float16_groups_[g].size(); ++i) {
      visit(*float16_groups_[g][i], *fp32_from_float16_groups_[g][i]);
    }
  }
}

void Float16OptimizerWithFloat16Params::copy_model_grads_to_main_grads() {
  const at::NoGradGuard no_grad;
  for_each_pair([](Parameter& model, Parameter& main) {
    const at::Tensor& gradient = model.main_grad.defined() ? model.main_grad : model.grad;
    if (gradient.defined()) {
      main.grad = gradient.detach().to(at::kFloat);  // the same storage when it is fp32
    } else {
      main.grad.reset();
    }
    model.grad.reset();
    main.bucket = model.bucket;  // buffers may be made after the optimizer
  });
  for (const auto& group : fp32_from_fp32_groups_) {
    for (const ParameterPtr& parameter : group) {
      if (parameter->main_grad.defined()) parameter->grad = parameter->main_grad;
    }
  }
}

void Float16OptimizerWithFloat16Params::zero_grad(bool set_to_none) {
  forget_recorded_scale();
  for (const Groups* groups : {&float16_groups_, &fp32_from_float16_groups_, &fp32_from_fp32_groups_}) {
    for (const auto& group : *groups) zero_grad_group_helper(group, set_to_none);
  }
}

std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>
Float16OptimizerWithFloat16Params::get_model_and_main_params_data_float16() const {
  std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> data;
  for_each_pair([&](const Parameter& model, const Parameter& main) {
    data.first.push_back(model.value.detach());
    data.second.push_back(main.value);
  });
  return data;
}

void Float16OptimizerWithFloat16Params::copy_main_params_to_model_params() {
  const at::NoGradGuard no_grad;
  const auto [model, main] = get_model_and_main_params_data_float16();
  const Status copied = multi_tensor_copy_this_to_that(main, model);
  PL_ASSERT_MSG(copied.has_value(), copied ? "" : copied.error().message);
}

void Float16OptimizerWithFloat16Params::copy_model_params_to_main_params() {
  const at::NoGradGuard no_grad;
  const auto [model, main] = get_model_and_main_params_data_float16();
  const Status copied = multi_tensor_copy_this_to_that(model, main);
  PL_ASSERT_MSG(copied.has_value(), copied ? "" : copied.error().message);
}

Status Float16OptimizerWithFloat16Params::reload_model_params(const StateDict* state) {
  if (state != nullptr) {
    return fail(
        ErrorCode::kUnsupported,
        "reload_model_params with a state dict: only the distributed optimizer fills main copies from one; "
        "load the model and reload without");
  }
  copy_model_params_to_main_params();
  return {};
}

StateDict Float16OptimizerWithFloat16Params::state_dict(bool is_loading) {
  StateDict state = MixedPrecisionOptimizer::state_dict(is_loading);
  StateList groups;
  for (const auto& group : fp32_from_float16_groups_) {
    StateList mains;
    for (const ParameterPtr& main : group) mains.emplace_back(main->value);
    groups.emplace_back(std::move(mains));
  }
  state["fp32_from_fp16_params"] = std::move(groups);
  return state;
}

// The saved main copies in the order of the current ones, each of the right size.
Result<std::vector<at::Tensor>> Float16OptimizerWithFloat16Params::saved_mains(
    const StateDict& state, const std::vector<std::size_t>& source) const {
  const char* key = state.contains("fp32_from_fp16_params") ? "fp32_from_fp16_params" : "fp32_from_fp16";
  const Result<const StateList*> groups = state.list(key);
  if (!groups) return tl::unexpected(groups.error());
  if ((*groups)->size() != fp32_from_float16_groups_.size()) {
    return fail(ErrorCode::kState, fmt::format("{}: {} groups were saved, the optimizer has {}", key,
                                               (*groups)->size(), fp32_from_float16_groups_.size()));
  }
  std::vector<at::Tensor> values;
  for (std::size_t g = 0; g < fp32_from_float16_groups_.size(); ++g) {
    const std::size_t saved_group = source[g];
    const auto* saved = (**groups)[saved_group].get<StateList>();
    const auto& mains = fp32_from_float16_groups_[g];
    if (saved == nullptr || saved->size() != mains.size()) {
      return fail(ErrorCode::kState,
                  fmt::format("{}: group {} is {}; the optimizer's group {} has {} fp16 or bf16 parameters",
                              key, saved_group, describe((**groups)[saved_group]), g, mains.size()));
    }
    for (std::size_t i = 0; i < mains.size(); ++i) {
      const auto* value = (*saved)[i].get<at::Tensor>();
      if (value == nullptr || !value->defined() || value->sizes() != mains[i]->value.sizes()) {
        return fail(ErrorCode::kState, fmt::format("{}: group {}, parameter '{}' is {}; its main copy is {}",
                                                   key, saved_group, mains[i]->name, describe((*saved)[i]),
                                                   describe(StateValue(mains[i]->value))));
      }
      values.push_back(*value);
    }
  }
  return values;
}

Status Float16OptimizerWithFloat16Params::load_state_dict(const StateDict& state) {
  const at::NoGradGuard no_grad;
  const Result<const StateDict*> saved =
      state.dict(state.contains("optimizer") ? "optimizer" : "optimizer_state_dict");
  if (!saved) return tl::unexpected(saved.error());
  const Result<InnerState> matched = match_inner_state(**saved);
  if (!matched) return fail(matched.error().code, "optimizer, " + matched.error().message);
  const Result<std::vector<at::Tensor>> mains = saved_mains(state, matched->source);
  if (!mains) return tl::unexpected(mains.error());
  LossScaler scaler = scaler_;
  std::vector<std::string> notices;
  PL_TRY(load_scaler(state, scaler, notices));
  if (const Status loaded = inner_->load_state_dict(matched->state); !loaded) {
    return fail(loaded.error().code, "optimizer, " + loaded.error().message);
  }
  const std::vector<at::Tensor> targets = get_model_and_main_params_data_float16().second;
  const std::vector<at::Tensor> sources = separate_aliases(*mains, targets);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i].is_same(sources[i])) targets[i].copy_(sources[i]);
  }
  scaler_ = scaler;
  notices_ = std::move(notices);
  return {};
}

}  // namespace plumbline
