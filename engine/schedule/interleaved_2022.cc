// Interleaved 1F1B as Megatron-LM ran it in January 2022. For M != P it is the current schedule with G = P;
// for M = P every rank, not only those that have to, runs all its forwards before its first backward.
//
//   P = 2, V = 2, M = 2, a backward takes two steps
//   (0 1 forward, a b backward of the same microbatches, ' marks chunk 1, . idle)
//
//   rank 0   0  1  0' 1' .  .  .  a' a' b' b' a  a  b  b
//   rank 1   .  0  1  0' 1' a' a' b' b' a  a  b  b  .  .
//
// Table    the k-th virtual microbatch is of chunk (k mod PV) div P; hence M must be a multiple of P.
// Warm-up  M V forwards if M = P, else min(M V, 2(P-r-1) + (V-1)P).
// Bubble   (P-1)(F+B) of makespan, F and B of one chunk.
// Memory   M V live chunk activations on every rank if M = P, else min(M V, 2(P-r-1) + (V-1)P + 1).
// Source   Megatron-LM, 26 January 2022, megatron/schedules.py:
//          forward_backward_pipelining_with_interleaving.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/interleaved_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "interleaved-2022";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kMany));
  PL_TRY(check_interleaved_2022(args.ranks, args.chunks, args.microbatches));
  if (args.group_size != 0 && args.group_size != args.ranks) {
    return fail(ErrorCode::kConfig,
                "schedule interleaved-2022: its group size is the number of ranks; leave it out or "
                "take 'interleaved'");
  }
  Schedule schedule = begin_schedule(args, kName);
  const ScheduleTable table = schedule_table(args.microbatches, args.chunks, args.ranks);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const WarmupCounts counts =
        warmup_counts_2022(args.ranks, rank, args.chunks, args.microbatches, args.forward_only);
    interleaved_row(table, counts, schedule, rank, &row);
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_interleaved_2022{Generator{
    .name = kName,
    .summary = "several chunks a rank, as Megatron-LM of January 2022",
    .constraints = "M is a multiple of P",
    .bubble = "makespan: (P-1)(F+B), F and B of one chunk",
    .memory = "M V chunks on every rank if M = P, else min(M V, 2(P-r-1) + (V-1)P + 1) on rank r",
    .source = "Megatron-LM megatron/schedules.py, January 2022",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
