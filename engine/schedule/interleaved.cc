// Interleaved 1F1B, as Megatron-core runs it today: a rank holds V chunks, stage c*P + r is chunk c of rank
// r, and microbatches pass chunk after chunk in groups of G. The bubble shrinks V times against 1F1B, since F
// and B below are one chunk's; p2p volume grows V times.
//
//   P = 2, V = 2, M = 4, G = 2, a backward takes two steps
//   (0..3 forward, a..d backward of the same microbatches, ' marks chunk 1, . idle)
//
//   rank 0   0  1  0' 1' 2  .  a' a' 3  b' b' 2' a  a  3' b  b  .  c' c' .  d' d' c  c  d  d
//   rank 1   .  0  1  0' a' a' 1' b' b' 2  a  a  3  b  b  2' c' c' 3' d' d' c  c  d  d  .  .
//
// Table    groups of G microbatches; inside a group all microbatches of chunk 0, then of chunk 1, and so on.
//          The last group is whatever is left. Less than P would starve the ring between chunks: refused.
// Warm-up  min(M V, 2(P-r-1) + (V-1)G) forwards on rank r.
// Bubble   (P-1)(F+B) of makespan for every G and M that is not refused.
// Memory   min(M V, 2(P-r-1) + (V-1)G + 1) live chunk activations on rank r.
// Source   Narayanan et al., SC 2021; Megatron-core 0.20, schedules.py:
//          forward_backward_pipelining_with_interleaving, get_pp_rank_microbatches, get_schedule_table.
//          V = 1 and P = 1 are computed as the formulas say; upstream's arguments never let them through.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/interleaved_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "interleaved";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kMany));
  const int group = args.group_size == 0 ? args.ranks : args.group_size;
  PL_TRY(check_interleaved(args.ranks, args.chunks, args.microbatches, group));
  Schedule schedule = begin_schedule(args, kName);
  const ScheduleTable table = schedule_table(args.microbatches, args.chunks, group);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const WarmupCounts counts =
        warmup_counts(args.ranks, rank, args.chunks, true, args.microbatches, group, args.forward_only);
    interleaved_row(table, counts, schedule, rank, &row);
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_interleaved{Generator{
    .name = kName,
    .summary = "several chunks a rank, in groups of G microbatches (current Megatron)",
    .constraints = "P <= G <= M; M mod G is 0 or at least P",
    .bubble = "makespan: (P-1)(F+B), F and B of one chunk",
    .memory = "min(M V, 2(P-r-1) + (V-1)G + 1) chunks on rank r",
    .source = "Narayanan et al. 2021; Megatron-core schedules.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
