#include "engine/optim/hybrid_device_optimizer.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

bool is_fp32(const Parameter& parameter) { return parameter.value.scalar_type() == at::kFloat; }

// Elements whose rounded working value is not the weight become the weight; a NaN never equals, so it becomes one
// too.
void follow_weight(const at::Tensor& working, const at::Tensor& weight) {
  const at::Tensor wanted = weight.to(working.device(), at::kFloat);
  const at::Tensor rounded = working.to(weight.scalar_type()).to(at::kFloat);
  working.copy_(at::where(rounded.eq(wanted), working, wanted));
}

template <typename Visit>
void for_each_moment(ParamState& state, Visit visit) {
  for (at::Tensor* tensor : {&state.exp_avg, &state.exp_avg_sq, &state.momentum_buffer}) {
    if (tensor->defined()) visit(*tensor);
  }
}

}  // namespace

Result<std::unique_ptr<HybridDeviceOptimizer>> HybridDeviceOptimizer::create(std::vector<ParamGroup> groups,
                                                                             BaseOptimizerOptions options,
                                                                             HybridDeviceOptions hybrid) {
  if (!(hybrid.offload_fraction >= 0.0 && hybrid.offload_fraction <= 1.0)) {
    return fail(ErrorCode::kConfig,
                fmt::format("optimizer offload fraction {}: it is a part of all elements, 0 to 1",
                            hybrid.offload_fraction));
  }
  return std::unique_ptr<HybridDeviceOptimizer>(
      new HybridDeviceOptimizer(std::move(groups), options, hybrid));
}

HybridDeviceOptimizer::HybridDeviceOptimizer(std::vector<ParamGroup> groups, BaseOptimizerOptions options,
                                             HybridDeviceOptions hybrid)
    : BaseOptimizer(std::move(groups), options), hybrid_(hybrid) {
  follow_groups();
}

at::Device HybridDeviceOptimizer::device_of(const Part& part) const {
  return part.offloaded ? hybrid_.offload_device : part.parameter->value.device();
}

ParameterPtr HybridDeviceOptimizer::working_parameter(const Part& part) const {
  if (!part.offloaded && !part.copied) return part.parameter;
  auto working = std::make_shared<Parameter>(*part.parameter);
  working->grad.reset();
  working->main_grad.reset();
  working->decoupled_grad.reset();
  const at::Tensor value = part.parameter->value.detach();
  working->value = value.to(device_of(part), part.copied ? at::kFloat : value.scalar_type(),
                            /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  return working;
}

// A wrapper exchanges the parameters of the groups after creation (main copies, shards), so the halves are made
// again when the groups are not those they were made for.
void HybridDeviceOptimizer::follow_groups() {
  std::vector<std::size_t> sizes;
  for (const ParamGroup& group : groups_) sizes.push_back(group.params.size());
  std::vector<ParameterPtr> now = parameters();
  if (resident_.optimizer != nullptr && now == followed_ && sizes == group_sizes_) return;
  const at::NoGradGuard no_grad;
  std::int64_t total = 0;
  for (const ParameterPtr& parameter : now) total += parameter->numel();
  const double wanted = hybrid_.offload_fraction * static_cast<double>(total);
  std::int64_t offloaded = 0;
  std::size_t position = 0;
  std::vector<std::vector<Part>> by_group;
  for (const ParamGroup& group : groups_) {
    auto& parts = by_group.emplace_back();
    for (const ParameterPtr& parameter : group.params) {
      Part part;
      part.parameter = parameter;
      part.position = position++;
      part.offloaded = static_cast<double>(offloaded) < wanted;
      part.copied = !is_fp32(*parameter) && hybrid_.param_update_in_fp32;
      if (part.offloaded) offloaded += parameter->numel();
      part.working = working_parameter(part);
      parts.push_back(std::move(part));
    }
  }
  resident_ = make_half(by_group, false);
  offloaded_ = make_half(by_group, true);
  followed_ = std::move(now);
  group_sizes_ = std::move(sizes);
}

HybridDeviceOptimizer::Half HybridDeviceOptimizer::make_half(const std::vector<std::vector<Part>>& by_group,
                                                             bool offloaded) const {
  Half half;
  std::vector<ParamGroup> groups = groups_;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].params.clear();
    for (const Part& part : by_group[g]) {
      if (part.offloaded != offloaded) continue;
      groups[g].params.push_back(part.working);
      half.parts.push_back(part);
    }
  }
  half.optimizer = std::make_unique<BaseOptimizer>(std::move(groups), options_);
  return half;
}

bool HybridDeviceOptimizer::is_offloaded(const Parameter& parameter) {
  follow_groups();
  for (const Part& part : offloaded_.parts) {
    if (part.parameter.get() == &parameter) return true;
  }
  return false;
}

std::int64_t HybridDeviceOptimizer::offloaded_numel() {
  follow_groups();
  std::int64_t numel = 0;
  for (const Part& part : offloaded_.parts) numel += part.parameter->numel();
  return numel;
}

// Brings the working value up to date before an update.
void HybridDeviceOptimizer::refresh(const Part& part) {
  if (part.working == part.parameter) return;
  if (!part.copied) {
    part.working->value.copy_(part.parameter->value);
    return;
  }
  const ParamState* state = find_state(*part.parameter);
  if (state == nullptr || !state->master_param.defined()) {  // never updated, or loaded without one
    part.working->value.copy_(part.parameter->value);
    return;
  }
  if (!state->master_param.is_same(part.working->value)) {  // loaded, or from before the groups changed
    part.working->value.copy_(state->master_param);
  }
  follow_weight(part.working->value, part.parameter->value.detach());
}

// Gradient and state of the parameter to the sub-optimizer.
void HybridDeviceOptimizer::push(const Part& part, BaseOptimizer& half) {
  const at::Device device = device_of(part);
  if (part.working != part.parameter) {
    const Parameter& from = *part.parameter;
    part.working->grad = from.grad.defined() ? from.grad.to(device) : at::Tensor();
    part.working->decoupled_grad =
        from.decoupled_grad.defined() ? from.decoupled_grad.to(device) : at::Tensor();
  }
  ParamState* state = find_state(*part.parameter);
  if (state == nullptr) return half.erase_state(*part.working);
  for_each_moment(*state, [&](at::Tensor& tensor) { tensor = tensor.to(device); });
  ParamState& own = half.state(*part.working);
  own = *state;
  own.master_param.reset();
}

// State back to the parameter.
void HybridDeviceOptimizer::pull(const Part& part, BaseOptimizer& half) {
  Parameter& working = *part.working;
  const bool updated = (options_.precision_aware ? working.decoupled_grad : working.grad).defined();
  if (part.working != part.parameter) {
    working.grad.reset();
    working.decoupled_grad.reset();
  }
  const ParamState* own = half.find_state(working);
  if (own == nullptr && !(updated && part.copied)) return;  // SGD without momentum has a working copy alone
  ParamState& state = state_[part.parameter.get()];
  state = own == nullptr ? ParamState() : *own;
  if (part.copied) state.master_param = working.value;
}

void HybridDeviceOptimizer::step_half(Half& half, float gradient_factor,
                                      const std::vector<Parameter*>* model) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    ParamGroup& own = half.optimizer->param_groups()[g];
    std::vector<ParameterPtr> params = std::move(own.params);
    own = groups_[g];
    own.params = std::move(params);
  }
  // What the update rounds its result into in the same pass; `later` gets it by a copy.
  std::vector<Parameter*> targets;
  std::vector<std::pair<const Part*, Parameter*>> later;
  for (const Part& part : half.parts) {
    refresh(part);
    push(part, *half.optimizer);
    Parameter* target = nullptr;
    const auto add = [&](Parameter* wanted) {
      if (wanted == nullptr || wanted == part.working.get()) return;
      if (target == nullptr && wanted->value.device() == part.working->value.device()) {
        target = wanted;
      } else {
        later.emplace_back(&part, wanted);
      }
    };
    add(model == nullptr ? nullptr : (*model)[part.position]);
    add(part.parameter.get());
    targets.push_back(target);
  }
  half.optimizer->step(gradient_factor, &targets);
  for (const auto& [part, target] : later) target->value.copy_(part->working->value.view_as(target->value));
  for (const Part& part : half.parts) pull(part, *half.optimizer);
}

void HybridDeviceOptimizer::step(float gradient_factor, const std::vector<Parameter*>* model) {
  follow_groups();
  PL_ASSERT(model == nullptr || model->size() == followed_.size());
  const at::NoGradGuard no_grad;
  step_half(resident_, gradient_factor, model);
  step_half(offloaded_, gradient_factor, model);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].step = resident_.optimizer->param_groups()[g].step;  // counted once in each half
  }
}

void HybridDeviceOptimizer::init_state() {
  follow_groups();
  const at::NoGradGuard no_grad;
  BaseOptimizer::init_state();
  for (const Half* half : {&resident_, &offloaded_}) {
    for (const Part& part : half->parts) {
      ParamState* own = find_state(*part.parameter);
      if (own == nullptr) continue;
      for_each_moment(*own, [&](at::Tensor& tensor) { tensor = tensor.to(device_of(part)); });
      if (!part.copied) continue;
      refresh(part);
      own->master_param = part.working->value;
    }
  }
}

int HybridDeviceOptimizer::update_fp32_params_from_model() {
  follow_groups();
  const at::NoGradGuard no_grad;
  int updated = 0;
  for (const Half* half : {&resident_, &offloaded_}) {
    for (const Part& part : half->parts) {
      if (!part.copied) continue;
      part.working->value.copy_(part.parameter->value);
      if (ParamState* own = find_state(*part.parameter)) own->master_param = part.working->value;
      ++updated;
    }
  }
  return updated;
}

}  // namespace plumbline
