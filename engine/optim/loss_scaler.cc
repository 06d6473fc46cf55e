#include "engine/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

namespace plumbline {
namespace {

// Above 0 and finite once rounded to fp32; a double may leave that range on the way.
bool usable(double value) {
  const float rounded = static_cast<float>(value);
  return rounded > 0.0f && std::isfinite(rounded);
}

}  // namespace

Result<LossScaler> LossScaler::constant(double scale) {
  if (!usable(scale)) {
    return fail(ErrorCode::kConfig,
                fmt::format("loss scale {} must be above 0 and finite in single precision", scale));
  }
  LossScaler scaler;
  scaler.kind_ = Kind::kConstant;
  scaler.scale_ = static_cast<float>(scale);
  return scaler;
}

Result<LossScaler> LossScaler::dynamic(const Dynamic& o) {
  const auto refuse = [](const char* what, double value, const char* rule) {
    return fail(ErrorCode::kConfig,
                fmt::format("{} of the loss scale is {}; it must be {}", what, value, rule));
  };
  if (!usable(o.initial)) return refuse("initial value", o.initial, "above 0 and finite in single precision");
  if (!usable(o.minimum)) return refuse("minimum", o.minimum, "above 0 and finite in single precision");
  if (!(o.minimum <= o.initial) && o.rule != ScalerRule::kTorch)
    return refuse("minimum", o.minimum, "at most the initial value");
  if (!(o.growth_factor > 1.0) || !usable(o.growth_factor))
    return refuse("growth factor", o.growth_factor, "above 1 and finite in single precision");
  if (!(o.backoff_factor > 0.0 && o.backoff_factor < 1.0))
    return refuse("back-off factor", o.backoff_factor, "between 0 and 1");
  if (o.window < 1) return refuse("window", o.window, "at least 1");
  if (o.hysteresis < 1) return refuse("hysteresis", o.hysteresis, "at least 1");
  LossScaler scaler;
  scaler.kind_ = Kind::kDynamic;
  scaler.rule_ = o.rule;
  scaler.scale_ = static_cast<float>(o.initial);
  scaler.minimum_ = static_cast<float>(o.minimum);
  scaler.growth_factor_ = static_cast<float>(o.growth_factor);
  scaler.backoff_factor_ = static_cast<float>(o.backoff_factor);
  scaler.window_ = o.window;
  scaler.full_hysteresis_ = scaler.hysteresis_ = o.hysteresis;
  scaler.capped_ = o.capped || o.rule == ScalerRule::kTorch;
  scaler.consecutive_hysteresis_ = o.consecutive_hysteresis;
  return scaler;
}

Result<LossScaler> LossScaler::of(const LossScaleConfig& config, Precision precision) {
  if (config.constant > 0.0) return constant(config.constant);
  if (precision != Precision::kFp16) return LossScaler{};
  Dynamic options;
  options.initial = config.initial;
  options.minimum = config.minimum;
  options.growth_factor = config.growth_factor;
  options.backoff_factor = config.backoff_factor;
  options.window = config.window;
  options.hysteresis = config.hysteresis;
  options.capped = config.capped;
  options.rule = config.rule;
  return dynamic(options);
}

float LossScaler::inverse() const { return static_cast<float>(1.0 / static_cast<double>(scale_)); }

void LossScaler::update(bool found_inf) {
  if (kind_ != Kind::kDynamic) return;
  found_inf ? overflow() : clean();
}

void LossScaler::overflow() {
  growth_ = 0;
  const float lowest = floored() ? minimum_ : 0.0f;
  overflows_at_minimum_ = scale_ <= lowest ? overflows_at_minimum_ + 1 : 0;
  bool back_off = true;
  if (rule_ == ScalerRule::kMegatron) back_off = --hysteresis_ <= 0;
  if (rule_ == ScalerRule::kDeepSpeed) {
    back_off = hysteresis_ <= 1;
    hysteresis_ = std::max<std::int64_t>(hysteresis_ - 1, 1);
  }
  cannot_decrease_ = back_off && scale_ <= lowest;
  if (back_off) scale_ = std::max(scale_ * backoff_factor_, lowest);
}

void LossScaler::clean() {
  overflows_at_minimum_ = 0;
  cannot_decrease_ = false;
  if (consecutive_hysteresis_) hysteresis_ = full_hysteresis_;
  if (++growth_ != window_) return;
  growth_ = 0;
  hysteresis_ = full_hysteresis_;
  grow();
}

void LossScaler::grow() {
  const float grown = scale_ * growth_factor_;
  growth_left_out_ = capped_ && !std::isfinite(grown);
  if (!growth_left_out_) scale_ = grown;
}

LossScaler::Facts LossScaler::facts(std::int64_t livelock_after) const {
  Facts facts;
  facts.overflows_at_minimum = overflows_at_minimum_;
  facts.cannot_decrease = cannot_decrease_;
  facts.livelock = overflows_at_minimum_ > 0 && overflows_at_minimum_ >= livelock_after;
  facts.capped = growth_left_out_;
  facts.broken = !usable(scale_) || !usable(inverse());
  return facts;
}

bool LossScaler::operator==(const LossScaler& other) const {
  const auto state = [](const LossScaler& s) {
    return std::tie(s.kind_, s.rule_, s.scale_, s.minimum_, s.growth_factor_, s.backoff_factor_, s.window_,
                    s.full_hysteresis_, s.growth_, s.hysteresis_, s.capped_, s.consecutive_hysteresis_);
  };
  return state(*this) == state(other);
}

}  // namespace plumbline
