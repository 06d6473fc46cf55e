// The loss scale: what the loss is multiplied with so that fp16 gradients do not vanish. Megatron's rule
// (megatron/core/optimizer/grad_scaler.py), fp32 throughout:
//   overflow:     growth counter to 0, hysteresis counter down by one; from 0 on the scale backs off,
//                 never below the minimum
//   no overflow:  growth counter up; at the window's end the scale grows and both counters start anew
// Good steps do not give hysteresis back, only a growth does. Every rank holds one; all are fed the agreed
// found_inf, so they stay equal.
#pragma once

#include <cstdint>

#include "engine/base/result.h"
#include "engine/config/run_config.h"

namespace plumbline {

class LossScaler {
 public:
  enum class Kind : std::uint8_t { kNone, kConstant, kDynamic };

  struct Dynamic {
    double initial = 4294967296.0;
    double minimum = 1.0;
    double growth_factor = 2.0;
    double backoff_factor = 0.5;
    int window = 1000;
    int hysteresis = 2;
    bool capped = true;  // a growth that would make the scale infinite is left out; Megatron lets it happen
  };

  // No scaling: scale 1, no overflow check.
  LossScaler() = default;
  static Result<LossScaler> constant(double scale);
  // Refuses what Megatron refuses: a scale or minimum not above 0, a minimum above the initial scale, growth
  // not above 1, back-off outside (0, 1), a window or hysteresis below 1.
  static Result<LossScaler> dynamic(const Dynamic& options);
  // Of a configuration: constant if given, else dynamic with fp16, else none.
  static Result<LossScaler> of(const LossScaleConfig& config, Precision precision);

  Kind kind() const { return kind_; }
  // Whether gradients are checked for overflow at all.
  bool checks() const { return kind_ != Kind::kNone; }
  float scale() const { return scale_; }
  float inverse() const;  // float(1 / double(scale))
  std::int64_t growth_tracker() const { return growth_; }
  std::int64_t hysteresis_tracker() const { return hysteresis_; }

  void update(bool found_inf);

  bool operator==(const LossScaler&) const = default;

 private:
  Kind kind_ = Kind::kNone;
  float scale_ = 1.0f;
  float minimum_ = 1.0f, growth_factor_ = 2.0f, backoff_factor_ = 0.5f;
  std::int64_t window_ = 1, full_hysteresis_ = 1;
  std::int64_t growth_ = 0, hysteresis_ = 1;
  bool capped_ = true;
};

}  // namespace plumbline
