#include "engine/optim/mixed_precision_optimizer.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

namespace plumbline {
namespace {

constexpr const char* kScalerKey = "optimizer.grad_scaler";

}  // namespace

MixedPrecisionOptimizer::MixedPrecisionOptimizer(std::unique_ptr<BaseOptimizer> inner,
                                                 MegatronOptimizerOptions options, LossScaler scaler,
                                                 InitStateFn init_state)
    : WrapperOptimizer(std::move(inner), std::move(options), std::move(init_state)), scaler_(scaler) {}

Status MixedPrecisionOptimizer::check_scaler(const LossScaler& scaler,
                                             const std::vector<ParameterPtr>& models) {
  if (scaler.checks()) return {};
  for (const ParameterPtr& parameter : models) {
    if (parameter->value.scalar_type() != at::kHalf) continue;
    return fail(
        ErrorCode::kConfig,
        fmt::format("parameter '{}' is fp16 and there is no loss scaler; fp16 gradients need one, constant "
                    "or dynamic (loss-scale, initial-loss-scale)",
                    parameter->name));
  }
  return {};
}

std::vector<at::Tensor> MixedPrecisionOptimizer::collect_main_grad_data_for_unscaling() const {
  return main_gradients();
}

Result<bool> MixedPrecisionOptimizer::unscale(ExactSum* norm) {
  PL_TRY(ready("unscaling gradients"));
  if (!scaler_.checks()) return false;
  PL_TRY(check_recorded_scale());
  forget_recorded_scale();
  const at::NoGradGuard no_grad;
  const float inverse = scaler_.inverse();
  bool found = false;
  for (const ParameterPtr& parameter : get_parameters()) {
    const at::Tensor gradient = main_grad(*parameter);
    if (!gradient.defined()) continue;
    ExactSum* squares = norm != nullptr && counted(*parameter) ? norm : nullptr;
    if (gradient.scalar_type() == at::kFloat) {
      found = unscale_and_check({gradient}, inverse, squares) || found;
      continue;
    }
    // A decoupled gradient in 16 bits: unscaled in fp32, rounded back, and in the norm as it is then.
    const at::Tensor wide = gradient.to(at::kFloat);
    found = unscale_and_check({wide}, inverse) || found;
    gradient.copy_(wide);
    if (squares != nullptr) *squares += local_norm({gradient.to(at::kFloat)}, 2.0)->squares;
  }
  return found;
}

Result<bool> MixedPrecisionOptimizer::unscale_local_with_norm(LocalNorm& norm) {
  if (!scaler_.checks() || options_.norm_type != 2.0) return MegatronOptimizer::unscale_local_with_norm(norm);
  norm = LocalNorm{};
  return unscale(&norm.squares);
}

Result<bool> MixedPrecisionOptimizer::unscale_main_grads_and_check_for_nan() {
  const Result<bool> local = unscale_local();
  return local ? agree(*local) : local;
}

at::Tensor MixedPrecisionOptimizer::get_loss_scale() const { return loss_scale_tensor(scaler_.scale()); }

StateDict MixedPrecisionOptimizer::state_dict(bool is_loading) {
  if (is_loading) init_state();
  StateDict state{{"optimizer", inner_->state_dict()}};
  if (scaler_.checks()) state["grad_scaler"] = scaler_.state_dict();
  return state;
}

Status MixedPrecisionOptimizer::load_scaler(const StateDict& state, LossScaler& scaler,
                                            std::vector<std::string>& notices) const {
  const StateValue* saved = state.find("grad_scaler");
  if (saved == nullptr || saved->none()) {
    if (scaler.kind() == LossScaler::Kind::kDynamic) {
      notices.push_back(
          fmt::format("no grad_scaler in the state: the loss scale stays {} and its counters start anew",
                      scaler.scale()));
    }
    return {};
  }
  if (!scaler.checks()) {
    notices.emplace_back("the state has a grad_scaler, this optimizer has none: left out");
    return {};
  }
  const Result<const StateDict*> dict = state.dict("grad_scaler");
  if (!dict) return tl::unexpected(dict.error());
  if (const Status loaded = scaler.load_state_dict(**dict, &notices); !loaded) {
    return fail(loaded.error().code, "grad_scaler, " + loaded.error().message);
  }
  return {};
}

Result<ShardedStateDict> MixedPrecisionOptimizer::sharded_state_dict(bool is_loading,
                                                                     const ShardedMetadata& metadata) {
  Result<ShardedStateDict> sharded = WrapperOptimizer::sharded_state_dict(is_loading, metadata);
  if (sharded && scaler_.checks()) {
    sharded->objects.push_back({metadata.prefix + kScalerKey, scaler_.state_dict(), options_.rank});
  }
  return sharded;
}

Status MixedPrecisionOptimizer::load_sharded_objects(const std::vector<ShardedObject>& objects,
                                                     const ShardedMetadata& metadata) {
  StateDict state;
  for (const ShardedObject& object : objects) {
    if (object.key == metadata.prefix + kScalerKey) state["grad_scaler"] = object.value;
  }
  LossScaler scaler = scaler_;
  std::vector<std::string> notices;
  PL_TRY(load_scaler(state, scaler, notices));
  PL_TRY(WrapperOptimizer::load_sharded_objects(objects, metadata));
  scaler_ = scaler;
  notices_ = std::move(notices);
  return {};
}

}  // namespace plumbline
