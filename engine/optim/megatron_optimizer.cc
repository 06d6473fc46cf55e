#include "engine/optim/megatron_optimizer.h"

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

std::vector<at::Tensor> widened(std::vector<at::Tensor> gradients) {
  for (at::Tensor& gradient : gradients) gradient = gradient.to(at::kFloat);  // itself when fp32
  return gradients;
}

}  // namespace

Status check_megatron_options(const MegatronOptimizerOptions& options) {
  const auto refuse = [](const char* what, double value, const char* rule) {
    return fail(ErrorCode::kConfig, fmt::format("{} is {}; it must be {}", what, value, rule));
  };
  if (!(options.clip_grad >= 0.0)) return refuse("clip_grad", options.clip_grad, "0 (off) or above");
  if (!(options.norm_type > 0.0)) return refuse("norm_type", options.norm_type, "above 0, infinity included");
  if (!(options.grad_norm_skip_threshold >= 0.0)) {
    return refuse("grad_norm_skip_threshold", options.grad_norm_skip_threshold, "0 (off) or above");
  }
  return {};
}

MegatronOptimizer::MegatronOptimizer(MegatronOptimizerOptions options) : options_(std::move(options)) {
  const Status fine = check_megatron_options(options_);
  PL_ASSERT_MSG(fine.has_value(), fine ? "" : fine.error().message);
  if (options_.grad_stats == nullptr) options_.grad_stats = alone();
}

bool MegatronOptimizer::counted(const Parameter& parameter) const {
  if (parameter.shared) return false;
  return parameter.tensor_parallel || (parameter.expert ? options_.expert_tp_rank : options_.tp_rank) == 0;
}

std::vector<at::Tensor> MegatronOptimizer::get_main_grads_for_grad_norm() const {
  std::vector<at::Tensor> gradients;
  for (const ParameterPtr& parameter : get_parameters()) {
    at::Tensor gradient = main_grad(*parameter);
    if (gradient.defined() && counted(*parameter)) gradients.push_back(std::move(gradient));
  }
  return gradients;
}

std::vector<at::Tensor> MegatronOptimizer::main_gradients() const {
  std::vector<at::Tensor> gradients;
  for (const ParameterPtr& parameter : get_parameters()) {
    at::Tensor gradient = main_grad(*parameter);
    if (gradient.defined()) gradients.push_back(std::move(gradient));
  }
  return gradients;
}

Status MegatronOptimizer::check_for_nan_local() const {
  if (!options_.check_for_nan || scaler() != nullptr) return {};
  for (const ParameterPtr& parameter : get_parameters()) {
    const at::Tensor gradient = main_grad(*parameter);
    if (!gradient.defined() || gradient.isfinite().all().item<bool>()) continue;
    const at::Tensor flat = gradient.reshape({-1});
    const std::int64_t place = flat.isfinite().logical_not().nonzero()[0].item<std::int64_t>();
    return fail(
        ErrorCode::kState,
        fmt::format(
            "rank {}, {}, parameter '{}': element {} of the gradient is {}; with check_for_nan "
            "a gradient must be finite, there is no loss scaler that would skip the step",
            options_.rank,
            parameter->bucket < 0 ? std::string("no bucket") : fmt::format("bucket {}", parameter->bucket),
            parameter->name, place + parameter->begin, flat[place].item<float>()));
  }
  return {};
}

LocalNorm MegatronOptimizer::norm_local() const {
  const Result<LocalNorm> norm = local_norm(widened(get_main_grads_for_grad_norm()), options_.norm_type);
  PL_ASSERT_MSG(norm.has_value(), norm ? "" : norm.error().message);
  return *norm;
}

std::int64_t MegatronOptimizer::count_zeros_local() const {
  return plumbline::count_zeros(widened(get_main_grads_for_grad_norm()));
}

bool MegatronOptimizer::above_skip_threshold(double norm) const {
  return skips_large_norms() && norm > options_.grad_norm_skip_threshold;
}

Result<bool> MegatronOptimizer::agree(bool flag) {
  float found = flag ? 1.0f : 0.0f;
  PL_TRY(options_.grad_stats->max(std::span<float>(&found, 1)));
  return found > 0.0f;
}

Result<bool> MegatronOptimizer::unscale_local_with_norm(LocalNorm& norm) {
  const Result<bool> found = unscale_local();
  if (found) norm = norm_local();
  return found;
}

Result<bool> MegatronOptimizer::prepare(LocalNorm* norm) {
  PL_TRY(sync_gradients());
  copy_model_grads_to_main_grads();
  const Result<bool> local = norm == nullptr ? unscale_local() : unscale_local_with_norm(*norm);
  if (!local) return local;
  if (scaler() != nullptr) {
    const Result<bool> found = agree(*local);
    if (found) update_scaler(*found);
    return found;
  }
  if (!options_.check_for_nan) return false;
  const Status fine = check_for_nan_local();
  const Result<bool> bad = agree(!fine.has_value());
  if (!bad) return bad;
  if (!fine) return tl::unexpected(fine.error());
  if (*bad) {
    return fail(ErrorCode::kState,
                fmt::format("rank {}: a gradient on another rank of the group is not finite; "
                            "its own message names the parameter",
                            options_.rank));
  }
  return false;
}

Result<StepOutcome> MegatronOptimizer::step() {
  LocalNorm local;
  const bool one_pass = wants_norm() && has_local_norm();
  const Result<bool> found = prepare(one_pass ? &local : nullptr);
  if (!found) return tl::unexpected(found.error());
  StepOutcome outcome;
  outcome.found_inf = *found;
  if (*found) return outcome;
  double norm = 0.0;
  if (wants_norm()) {
    const Result<LocalNorm> all =
        one_pass ? combine_norm(local, *get_grad_stats_parallel_group()) : reduced_norm();
    if (!all) return tl::unexpected(all.error());
    outcome.grad_norm = norm = norm_of(*all);
    if (skips_large_norms()) {  // with separate groups the ranks may see different norms
      const Result<bool> skip = agree(above_skip_threshold(norm));
      if (!skip) return tl::unexpected(skip.error());
      if (*skip) return outcome;
    }
  }
  if (options_.log_num_zeros) {
    const Result<std::int64_t> zeros = count_zeros();
    if (!zeros) return tl::unexpected(zeros.error());
    outcome.num_zeros = *zeros;
  }
  PL_TRY(finish_step(norm));
  PL_TRY(sync_params());
  outcome.success = true;
  return outcome;
}

Result<LocalNorm> MegatronOptimizer::reduced_norm() {
  return combine_norm(norm_local(), *get_grad_stats_parallel_group());
}

Result<double> MegatronOptimizer::get_grad_norm() {
  const Result<LocalNorm> norm = reduced_norm();
  if (!norm) return tl::unexpected(norm.error());
  return norm_of(*norm);
}

Result<double> MegatronOptimizer::clip_grad_norm(double max_norm) {
  const Result<double> norm = get_grad_norm();
  if (norm) scale_gradients(main_gradients(), clip_coefficient(*norm, max_norm));
  return norm;
}

Result<std::int64_t> MegatronOptimizer::count_zeros() {
  std::int64_t zeros = count_zeros_local();
  PL_TRY(get_grad_stats_parallel_group()->sum(std::span<std::int64_t>(&zeros, 1)));
  return zeros;
}

at::Tensor MegatronOptimizer::loss_scale_tensor(float scale) const {
  const std::vector<ParameterPtr> parameters = get_parameters();
  const at::Device device = parameters.empty() ? at::Device(at::kCPU) : parameters.front()->value.device();
  return at::full({1}, scale, at::device(device).dtype(at::kFloat));
}

at::Tensor MegatronOptimizer::scale_loss(const at::Tensor& loss) {
  if (scaler() != nullptr) {
    const float scale = scaler()->scale();
    if (recorded_scale_ && *recorded_scale_ != scale) recorded_scale_changed_ = true;
    if (!recorded_scale_) recorded_scale_ = scale;
  }
  return loss * get_loss_scale().reshape({}).to(loss.device());
}

Status MegatronOptimizer::check_recorded_scale() const {
  if (scaler() == nullptr || !recorded_scale_) return {};
  const float now = scaler()->scale();
  if (!recorded_scale_changed_ && *recorded_scale_ == now) return {};
  return fail(
      ErrorCode::kState,
      fmt::format("rank {}: the loss was multiplied with scale {}, the scale is {} now; gradients cannot be "
                  "unscaled after a change. Load states and update scalers between steps, and call "
                  "zero_grad() after that",
                  options_.rank, *recorded_scale_, now));
}

void MegatronOptimizer::forget_recorded_scale() {
  recorded_scale_.reset();
  recorded_scale_changed_ = false;
}

Result<StateDict> MegatronOptimizer::save_parameter_state() {
  return fail(
      ErrorCode::kUnsupported,
      "this optimizer keeps no parameter state beside state_dict(); only the distributed optimizer does");
}

Status MegatronOptimizer::load_parameter_state(const StateDict&, bool) {
  return fail(
      ErrorCode::kUnsupported,
      "this optimizer keeps no parameter state beside state_dict(); only the distributed optimizer does");
}

void add_norm(LocalNorm& sum, const LocalNorm& more) {
  PL_ASSERT(sum.p == more.p);
  if (sum.p == 2.0) {
    sum.squares += more.squares;
  } else if (std::isinf(sum.p)) {
    if (std::isnan(more.other) || more.other > sum.other) sum.other = more.other;
  } else {
    sum.other += more.other;
  }
}

Result<LocalNorm> combine_norm(const LocalNorm& local, Collective& group) {
  LocalNorm sum = local;
  if (local.p == 2.0) {
    std::array<std::int64_t, ExactSum::kWords> words = local.squares.words();
    PL_TRY(group.sum(std::span<std::int64_t>(words)));
    sum.squares = ExactSum::of(words);
  } else if (std::isinf(local.p)) {
    auto largest = static_cast<float>(local.other);  // a float's magnitude: exact
    PL_TRY(group.max(std::span<float>(&largest, 1)));
    sum.other = static_cast<double>(largest);
  } else {
    PL_TRY(group.sum(std::span<double>(&sum.other, 1)));
  }
  return sum;
}

void zero_grad_group_helper(const std::vector<ParameterPtr>& group, bool set_to_none, bool decoupled) {
  const at::NoGradGuard no_grad;
  for (const ParameterPtr& parameter : group) {
    at::Tensor& gradient = decoupled ? parameter->decoupled_grad : parameter->grad;
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      if (gradient.grad_fn() != nullptr) gradient.detach_();
      gradient.zero_();
    }
  }
}

}  // namespace plumbline
