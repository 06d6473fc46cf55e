#include "engine/train/skip_notes.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "engine/train/trainer.h"

namespace plumbline {

void note_skips(const LossScaler& scaler, std::int64_t updates_before, TrainOutcome& outcome) {
  if (outcome.exit_code != 0) return;
  const LossScaler::Facts facts = scaler.facts();
  if (facts.broken) {
    outcome.notices.push_back(fmt::format(
        "the loss scale is {}: every gradient overflows or vanishes — cap its growth, or use a smaller one",
        scaler.scale()));
  }
  if (facts.livelock) {
    outcome.notices.push_back(fmt::format(
        "the last {} steps overflowed at the lowest loss scale, {}: it cannot help — look for the "
        "gradient that is not finite",
        facts.overflows_at_minimum, scaler.scale()));
  }
  if (outcome.updates > 0 || updates_before > 0 || outcome.skipped == 0) return;
  outcome.exit_code = 1;
  outcome.notices.push_back(fmt::format(
      "none of the {} steps updated the model: all overflowed and were skipped; the loss scale is {} "
      "now — use a smaller --initial-loss-scale, or look for the gradient that is not finite",
      outcome.skipped, scaler.scale()));
}

}  // namespace plumbline
