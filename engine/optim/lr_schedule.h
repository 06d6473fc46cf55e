// The learning rate of step n, Megatron's formula (megatron/core/optimizer_param_scheduler.py): n counts the
// updates made so far, so skipped steps do not move it, and with a warm-up the very first update has the rate
// `initial`.
//   n <= warmup (warmup > 0): initial + (maximum - initial) * n / warmup
//   constant: maximum          n > decay: minimum
//   else: minimum + c * (maximum - minimum), c = 1 - x (linear) or (cos(pi x) + 1) / 2 (cosine),
//         with x = (n - warmup) / (decay - warmup)
#pragma once

#include <cstdint>

#include "engine/config/run_config.h"

namespace plumbline {

struct LrSchedule {
  double initial = 0.0;
  double maximum = 1e-3;
  double minimum = 0.0;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 1;
  DecayStyle style = DecayStyle::kConstant;

  static LrSchedule of(const OptimizerConfig& config, int iterations);
  double at(std::int64_t steps) const;
};

}  // namespace plumbline
