#include "engine/optim/lr_schedule.h"

#include <cmath>
#include <numbers>

namespace plumbline {

LrSchedule LrSchedule::of(const OptimizerConfig& config, int iterations) {
  LrSchedule schedule;
  schedule.maximum = config.lr;
  schedule.minimum = config.min_lr;
  schedule.warmup_steps = config.warmup_iterations;
  schedule.decay_steps = iterations;
  schedule.style = config.decay;
  return schedule;
}

double LrSchedule::at(std::int64_t steps) const {
  const double n = static_cast<double>(steps);
  const double w = static_cast<double>(warmup_steps);
  if (warmup_steps > 0 && steps <= warmup_steps) return initial + (maximum - initial) * n / w;
  if (style == DecayStyle::kConstant) return maximum;
  if (steps > decay_steps) return minimum;
  const double x = (n - w) / (static_cast<double>(decay_steps) - w);
  const double share = style == DecayStyle::kLinear ? 1.0 - x : 0.5 * (std::cos(std::numbers::pi * x) + 1.0);
  return minimum + share * (maximum - minimum);
}

}  // namespace plumbline
