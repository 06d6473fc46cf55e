// The rows of the hand-made zero-bubble schedules ZB-H1 and ZB-H2, which differ in one number.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/schedule/generator_support.h"

namespace plumbline {

// Rank r runs `depth` * (P-1-r) forwards, then in turn a forward (while there are any) and an input
// gradient. The first `depth` * r input gradients stand alone, so that all ranks begin with W at about the
// same time; from then on one W follows each I, and what is left of W comes last.
inline Schedule delayed_weight_grads(Schedule schedule, int depth) {
  const int microbatches = schedule.microbatches;
  std::vector<Action> row;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const int warmup = std::min(depth * (schedule.ranks - 1 - rank), microbatches);
    const int delay = depth * (schedule.ranks - 1) - warmup;  // more than depth * r where M cuts the warm-up
    row.clear();
    for (int m = 0; m < warmup; ++m) row.push_back(forward(rank, m));
    for (int k = 0; k < microbatches; ++k) {
      if (warmup + k < microbatches) row.push_back(forward(rank, warmup + k));
      row.push_back(input_grad(rank, k));
      if (k >= delay) row.push_back(weight_grad(rank, k - delay));
    }
    for (int k = std::max(0, microbatches - delay); k < microbatches; ++k)
      row.push_back(weight_grad(rank, k));
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace plumbline
