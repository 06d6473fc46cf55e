#include "engine/optim/param_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

// From 1 at 0 to 0 at 1.
double cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

double wsd_coefficient(const ParamSchedulerOptions& o, std::int64_t n) {
  const std::int64_t start = o.lr_decay_steps - o.wsd_decay_steps;
  if (n <= start) return 1.0;
  const double ratio = as_double(n - start) / as_double(o.wsd_decay_steps);
  switch (o.wsd_decay_style) {
    case WsdStyle::kLinear:
      return 1.0 - ratio;
    case WsdStyle::kCosine:
      return cosine(ratio);
    case WsdStyle::kExponential:
      return 2.0 * std::pow(0.5, ratio) - 1.0;
    case WsdStyle::kMinusSqrt:
      return 1.0 - std::sqrt(ratio);
  }
  return 1.0;
}

double lr_at(const ParamSchedulerOptions& o, std::int64_t n, double max, double min) {
  if (o.lr_warmup_steps > 0 && n <= o.lr_warmup_steps)
    return o.init_lr + (max - o.init_lr) * as_double(n) / as_double(o.lr_warmup_steps);
  if (o.lr_decay_style == DecayStyle::kConstant) return max;
  if (n > o.lr_decay_steps) return min;
  const auto at_least_one = [](std::int64_t value) { return as_double(std::max<std::int64_t>(value, 1)); };
  const double ratio = as_double(n - o.lr_warmup_steps) / as_double(o.lr_decay_steps - o.lr_warmup_steps);
  switch (o.lr_decay_style) {
    case DecayStyle::kConstant:
      break;
    case DecayStyle::kInverseSquareRoot:
      return std::max(min, max * std::sqrt(at_least_one(o.lr_warmup_steps)) / std::sqrt(at_least_one(n)));
    case DecayStyle::kLinear:
      return min + (1.0 - ratio) * (max - min);
    case DecayStyle::kCosine:
      return min + cosine(ratio) * (max - min);
    case DecayStyle::kWsd:
      return min + wsd_coefficient(o, n) * (max - min);
  }
  return max;
}

double wd_at(const ParamSchedulerOptions& o, std::int64_t n, double start, double end) {
  if (n > o.wd_incr_steps || o.wd_incr_style == WdStyle::kConstant) return end;
  const double ratio = as_double(n) / as_double(o.wd_incr_steps);
  return start + (o.wd_incr_style == WdStyle::kLinear ? ratio : cosine(1.0 - ratio)) * (end - start);
}

Status check_lr(const ParamSchedulerOptions& o) {
  const auto refuse = [](const std::string& what) { return fail(ErrorCode::kConfig, what); };
  if (!(o.min_lr >= 0.0))
    return refuse(fmt::format("minimum learning rate is {}; it must be at least 0", o.min_lr));
  if (!(o.max_lr >= o.min_lr) || !std::isfinite(o.max_lr)) {
    return refuse(fmt::format("learning rate is {}; it must be finite and at least the minimum of {}",
                              o.max_lr, o.min_lr));
  }
  if (!(o.init_lr >= 0.0 && o.init_lr <= o.max_lr)) {
    return refuse(
        fmt::format("learning rate at the start of the warm-up is {}; it must be between 0 and the learning "
                    "rate of {}",
                    o.init_lr, o.max_lr));
  }
  if (o.lr_decay_steps < 1)
    return refuse(
        fmt::format("length of the learning-rate decay is {}; it must be at least 1", o.lr_decay_steps));
  if (o.lr_warmup_steps < 0 || o.lr_warmup_steps >= o.lr_decay_steps) {
    return refuse(
        fmt::format("length of the warm-up is {}; it must be at least 0 and below the length of the decay, "
                    "{}",
                    o.lr_warmup_steps, o.lr_decay_steps));
  }
  if (o.lr_decay_style == DecayStyle::kWsd && o.wsd_decay_steps < 1) {
    return refuse(fmt::format("length of the decay at the end of a WSD schedule is {}; it must be at least 1",
                              o.wsd_decay_steps));
  }
  return {};
}

Status check_wd(const ParamSchedulerOptions& o) {
  const auto refuse = [](const std::string& what) { return fail(ErrorCode::kConfig, what); };
  if (!(o.start_wd >= 0.0))
    return refuse(fmt::format("weight decay at the start is {}; it must be at least 0", o.start_wd));
  if (!(o.end_wd >= o.start_wd) || !std::isfinite(o.end_wd)) {
    return refuse(
        fmt::format("weight decay at the end is {}; it must be finite and at least that of the start, {}",
                    o.end_wd, o.start_wd));
  }
  if (o.wd_incr_style == WdStyle::kConstant && o.start_wd != o.end_wd) {
    return refuse(
        fmt::format("weight decay goes from {} to {}, but its style is constant; choose linear or cosine, "
                    "or equal values",
                    o.start_wd, o.end_wd));
  }
  if (o.wd_incr_style != WdStyle::kConstant && o.wd_incr_steps < 1) {
    return refuse(
        fmt::format("length of the weight decay's increase is {}; it must be at least 1", o.wd_incr_steps));
  }
  return {};
}

}  // namespace

Status OptimizerParamScheduler::check(const ParamSchedulerOptions& options) {
  PL_TRY(check_lr(options));
  PL_TRY(check_wd(options));
  if (options.use_checkpoint && options.override_checkpoint) {
    return fail(ErrorCode::kConfig,
                "the scheduler's settings cannot both be taken from the checkpoint "
                "(use_checkpoint_opt_param_scheduler) "
                "and override it (override_opt_param_scheduler); choose one");
  }
  return {};
}

Status OptimizerParamScheduler::check_groups(const ParamSchedulerOptions& options,
                                             const std::vector<ParamGroup*>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double start = groups[i]->start_wd.value_or(options.start_wd);
    const double end = groups[i]->end_wd.value_or(options.end_wd);
    if (options.wd_incr_style != WdStyle::kConstant || start == end) continue;
    return fail(ErrorCode::kConfig,
                fmt::format("weight decay of parameter group {} goes from {} to {}, but the style "
                            "is constant; choose linear or cosine, or equal values",
                            i, start, end));
  }
  return {};
}

Result<OptimizerParamScheduler> OptimizerParamScheduler::create(const ParamSchedulerOptions& options) {
  PL_TRY(check(options));
  OptimizerParamScheduler scheduler;
  scheduler.options_ = options;
  return scheduler;
}

Status OptimizerParamScheduler::attach(std::vector<ParamGroup*> groups) {
  PL_TRY(check_groups(options_, groups));
  groups_ = std::move(groups);
  step(0);
  return {};
}

void OptimizerParamScheduler::step(std::int64_t increment) {
  PL_ASSERT(increment >= 0);
  num_steps_ += increment;
  for (ParamGroup* group : groups_) {
    group->lr = get_lr(*group);
    group->weight_decay = get_wd(*group);
  }
}

double OptimizerParamScheduler::get_lr(const ParamGroup& group) const {
  const double max = group.max_lr.value_or(options_.max_lr), min = group.min_lr.value_or(options_.min_lr);
  return lr_at(options_, num_steps_, max, min) * group.lr_mult.value_or(1.0);
}

double OptimizerParamScheduler::get_wd(const ParamGroup& group) const {
  const double start = group.start_wd.value_or(options_.start_wd),
               end = group.end_wd.value_or(options_.end_wd);
  return wd_at(options_, num_steps_, start, end) * group.wd_mult.value_or(1.0);
}

}  // namespace plumbline
