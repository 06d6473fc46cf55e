// The rows that every interleaved schedule has: a table of virtual microbatches, walked once forward and once
// backward, the backward walk `warmup` forwards behind. Only table and counts differ between the versions.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "engine/schedule/generator.h"
#include "engine/schedule/megatron_order.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

// Step k of the table on this rank: a forward runs chunk[k], everything else the mirrored chunk. Stage of
// chunk c is c*P + rank.
inline Action virtual_action(const ScheduleTable& table, const Schedule& schedule, int rank, int k,
                             ActionKind kind) {
  const std::size_t at = static_cast<std::size_t>(k);
  const int last = schedule.stages / schedule.ranks - 1;
  const int chunk = kind == ActionKind::kForward ? table.chunk[at] : last - table.chunk[at];
  return Action{table.microbatch[at], static_cast<std::uint16_t>(chunk * schedule.ranks + rank), kind, 0};
}

// torch's and JaxPP's group size: M div P rounds (at least one) of equal size. An error if they cannot be
// equal.
inline Result<int> group_of_rounds(const GeneratorArgs& args, std::string_view schedule) {
  const int rounds = std::max(1, args.microbatches / args.ranks);
  if (args.microbatches % rounds == 0) return args.microbatches / rounds;
  const int down = args.microbatches - args.microbatches % rounds;
  return fail(ErrorCode::kConfig,
              fmt::format("schedule {}: {} microbatches on {} ranks make {} rounds of unequal size; "
                          "use {} or {} microbatches",
                          schedule, args.microbatches, args.ranks, rounds, down, down + rounds));
}

// Rank `rank`'s row into `row`, replacing what it holds. With `forward_only` no backwards.
inline void interleaved_row(const ScheduleTable& table, const WarmupCounts& counts, const Schedule& schedule,
                            int rank, std::vector<Action>* row) {
  const auto action = [&](int k, ActionKind kind) { return virtual_action(table, schedule, rank, k, kind); };
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
