#include "engine/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace plumbline {

Result<LossScaler> LossScaler::constant(double scale) {
  if (!(scale > 0.0)) return fail(ErrorCode::kConfig, fmt::format("loss scale {} must be above 0", scale));
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
  if (!(o.initial > 0.0)) return refuse("initial value", o.initial, "above 0");
  if (!(o.minimum > 0.0)) return refuse("minimum", o.minimum, "above 0");
  if (!(o.minimum <= o.initial)) return refuse("minimum", o.minimum, "at most the initial value");
  if (!(o.growth_factor > 1.0)) return refuse("growth factor", o.growth_factor, "above 1");
  if (!(o.backoff_factor > 0.0 && o.backoff_factor < 1.0))
    return refuse("back-off factor", o.backoff_factor, "between 0 and 1");
  if (o.window < 1) return refuse("window", o.window, "at least 1");
  if (o.hysteresis < 1) return refuse("hysteresis", o.hysteresis, "at least 1");
  LossScaler scaler;
  scaler.kind_ = Kind::kDynamic;
  scaler.scale_ = static_cast<float>(o.initial);
  scaler.minimum_ = static_cast<float>(o.minimum);
  scaler.growth_factor_ = static_cast<float>(o.growth_factor);
  scaler.backoff_factor_ = static_cast<float>(o.backoff_factor);
  scaler.window_ = o.window;
  scaler.full_hysteresis_ = scaler.hysteresis_ = o.hysteresis;
  scaler.capped_ = o.capped;
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
  return dynamic(options);
}

float LossScaler::inverse() const { return static_cast<float>(1.0 / static_cast<double>(scale_)); }

void LossScaler::update(bool found_inf) {
  if (kind_ != Kind::kDynamic) return;
  if (found_inf) {
    growth_ = 0;
    --hysteresis_;
    if (hysteresis_ <= 0) scale_ = std::max(scale_ * backoff_factor_, minimum_);
    return;
  }
  ++growth_;
  if (growth_ != window_) return;
  growth_ = 0;
  hysteresis_ = full_hysteresis_;
  const float grown = scale_ * growth_factor_;
  if (!capped_ || std::isfinite(grown)) scale_ = grown;
}

}  // namespace plumbline
