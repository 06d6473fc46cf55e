// The rows that every interleaved schedule has: a table of virtual microbatches, walked once forward and once
// backward, the backward walk `warmup` forwards behind. Only table and counts differ between the versions.
#pragma once

#include <vector>

#include "engine/schedule/megatron_order.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

// Rank `rank`'s row into `row`, replacing what it holds. Stage of chunk c is c*P + rank. With `forward_only`
// no backwards.
inline void interleaved_row(const ScheduleTable& table, const WarmupCounts& counts, const Schedule& schedule,
                            int rank, std::vector<Action>* row) {
  const int chunks = schedule.stages / schedule.ranks;
  const auto action = [&](int k, ActionKind kind) {
    const std::size_t at = static_cast<std::size_t>(k);
    const int chunk = kind == ActionKind::kForward ? table.chunk[at] : chunks - 1 - table.chunk[at];
    const int stage = chunk * schedule.ranks + rank;
    return Action{table.microbatch[at], static_cast<std::uint16_t>(stage), kind, 0};
  };
  row->clear();
  for (int k = 0; k < counts.warmup; ++k) row->push_back(action(k, ActionKind::kForward));
  for (int k = 0; k < counts.remaining; ++k) {
    row->push_back(action(counts.warmup + k, ActionKind::kForward));
    if (!schedule.forward_only) row->push_back(action(k, ActionKind::kBackward));
  }
  if (schedule.forward_only) return;
  for (int k = counts.remaining; k < counts.total; ++k) row->push_back(action(k, ActionKind::kBackward));
}

}  // namespace plumbline
