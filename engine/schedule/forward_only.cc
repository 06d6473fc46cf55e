// Forward only: evaluation and inference. With one chunk a rank the microbatches pass in order; with more, in
// the order of the interleaved schedule's table, under the same rules for G and M.
//
//   P = 3, M = 4
//
//   rank 0   0 1 2 3 . .
//   rank 1   . 0 1 2 3 .
//   rank 2   . . 0 1 2 3
//
// Bubble   (P-1)F of makespan, F of one chunk.
// Memory   nothing is kept for a backward.
// Source   Megatron-core schedules.py with forward_only=True.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/interleaved_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "forward-only";

Result<Schedule> make(const GeneratorArgs& requested) {
  GeneratorArgs args = requested;
  args.forward_only = true;
  PL_TRY(check_args(args, kName, Chunks::kMany));
  int group = args.ranks;
  if (args.chunks > 1) {
    if (args.group_size != 0) group = args.group_size;
    PL_TRY(check_interleaved(args.ranks, args.chunks, args.microbatches, group));
  }
  Schedule schedule = begin_schedule(args, kName);
  const ScheduleTable table = schedule_table(args.microbatches, args.chunks, group);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const WarmupCounts counts =
        warmup_counts(args.ranks, rank, args.chunks, args.chunks > 1, args.microbatches, group, true);
    interleaved_row(table, counts, schedule, rank, &row);
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_forward_only{Generator{
    .name = kName,
    .summary = "no backwards: evaluation and inference",
    .constraints = "one chunk a rank: M >= 1; more: P <= G <= M, and M mod G is 0 or at least P",
    .bubble = "makespan: (P-1)F, F of one chunk",
    .memory = "none kept",
    .source = "Megatron-core schedules.py, forward_only",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
