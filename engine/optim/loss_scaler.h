// The loss scale: what the loss is multiplied with so that fp16 gradients do not vanish. fp32 throughout.
// Every rank holds one; all are fed the agreed found_inf, so they stay equal.
//
// Three rules, named after the programs they come from:
//   Megatron   overflow: growth tracker to 0, hysteresis tracker down by one; from 0 on the scale backs off,
//              never below the minimum. Clean step: growth tracker up; at the window's end the scale grows
//              and both trackers start anew. (megatron/core/optimizer/grad_scaler.py)
//   DeepSpeed  the same, but the hysteresis tracker stays at 1, where the scale backs off. At the minimum
//              DeepSpeed raises an exception; here that is a fact: facts().cannot_decrease.
//              (deepspeed/runtime/fp16/loss_scaler.py)
//   torch      no hysteresis and no minimum: every overflow backs off, and a growth that is not finite is
//              left out whatever `capped` says. (torch.amp.GradScaler)
// Good steps do not give hysteresis back, only a growth does, unless consecutive_hysteresis is on
// (DeepSpeed's option). The cap is ours: a growth that would make the scale infinite is left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/optim/state_dict.h"

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
    bool capped = true;  // off: the scale may become infinite, as Megatron's does
    ScalerRule rule = ScalerRule::kMegatron;
    bool consecutive_hysteresis = false;  // a clean step restores hysteresis
  };

  // What is wrong with the scale, as values. Found since this object was made or loaded, not saved.
  struct Facts {
    // Overflows in a row, up to now, that came at a scale which cannot go lower.
    std::int64_t overflows_at_minimum = 0;
    bool cannot_decrease = false;  // the last update should have backed off from there; DeepSpeed raises
    bool livelock = false;         // as many of them as were asked for: every step is skipped, and will be
    bool capped = false;           // the last growth was left out, its scale would not be finite
    bool broken = false;  // scale or inverse is not finite or 0: every gradient overflows or vanishes

    bool operator==(const Facts&) const = default;
  };

  // No scaling: scale 1, no overflow check.
  LossScaler() = default;
  static Result<LossScaler> constant(double scale);
  // Refuses what Megatron refuses: a scale or minimum not above 0, a minimum above the initial scale, growth
  // not above 1, back-off outside (0, 1), a window or hysteresis below 1. Also values fp32 cannot hold.
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
  Facts facts(std::int64_t livelock_after = 10) const;

  // Dynamic: {scale: tensor float32[1], growth_tracker, hysteresis_tracker}, Megatron's names and order.
  // Others: empty, as Megatron's constant scaler.
  StateDict state_dict() const;
  // Takes scale (number or one-element tensor) and trackers, which must be there. Refused (kState, nothing
  // changed): a scale that is not finite or not above 0 in fp32; it cannot be guessed what it was. Brought
  // into range, with a sentence in `notices` (may be null): a scale below the minimum; a growth tracker
  // outside [0, window), which would not meet the window again (growth_stall); a hysteresis tracker above
  // the hysteresis. A scaler that is not dynamic ignores a state and says so.
  Status load_state_dict(const StateDict& state, std::vector<std::string>* notices = nullptr);
  // Whether a saved state, taken as it is, would keep this scaler from growing until the next overflow: a
  // sentence that says why. Happens in Megatron when the window was made shorter between two runs.
  std::optional<std::string> growth_stall(const StateDict& state) const;

  // Options, scale and trackers; not what facts() counts.
  bool operator==(const LossScaler& other) const;

 private:
  void overflow();
  void clean();
  void grow();
  bool floored() const { return rule_ != ScalerRule::kTorch; }

  Kind kind_ = Kind::kNone;
  ScalerRule rule_ = ScalerRule::kMegatron;
  float scale_ = 1.0f;
  float minimum_ = 1.0f, growth_factor_ = 2.0f, backoff_factor_ = 0.5f;
  std::int64_t window_ = 1, full_hysteresis_ = 1;
  std::int64_t growth_ = 0, hysteresis_ = 1;
  bool capped_ = true, consecutive_hysteresis_ = false;
  // Seen, not state.
  std::int64_t overflows_at_minimum_ = 0;
  bool cannot_decrease_ = false, growth_left_out_ = false;
};

}  // namespace plumbline
