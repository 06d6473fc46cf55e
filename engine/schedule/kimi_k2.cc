// Kimi K2's warm-up: interleaved 1F1B with one more forward on every rank before the first backward. The
// extra forward is there to be overlapped with a backward, whose expert all-to-all would otherwise stand
// exposed.
//
//   P = 2, V = 2, M = 4, a backward takes two steps
//   (0..3 forward, a..d backward of the same microbatches, ' marks chunk 1, . idle)
//
//   rank 0   0  1  0' 1' 2  3  .  a' a' 2' b' b' 3' a  a  .  b  b  .  c' c' d' d' c  c  d  d
//   rank 1   .  0  1  0' 1' a' a' 2  b' b' 3  a  a  2' b  b  3' c' c' d' d' c  c  d  d  .  .
//
// Groups   of G = M / max(1, M div P) microbatches, as in torch's flexible interleaving; P where P divides M.
// Warm-up  min(M V, 2(P-r-1) + (V-1)G + 1) forwards on rank r.
// Bubble   (P-1)(F+B) of makespan where P divides M, F and B of one chunk.
// Memory   min(M V, 2(P-r-1) + (V-1)G + 2) live chunk activations on rank r.
// Source   JaxPP schedules.py, KimiK2; Kimi K2 technical report, 2025.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/interleaved_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "kimi-k2";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kMany));
  PL_TRY(refuse_forward_only(args, kName));
  const Result<int> group = group_of_rounds(args, kName);
  if (!group) return tl::unexpected(group.error());
  Schedule schedule = begin_schedule(args, kName);
  const ScheduleTable table = schedule_table(args.microbatches, args.chunks, *group);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const WarmupCounts counts =
        warmup_counts(args.ranks, rank, args.chunks, true, args.microbatches, *group, false, true);
    interleaved_row(table, counts, schedule, rank, &row);
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_kimi_k2{Generator{
    .name = kName,
    .summary = "interleaved 1F1B with one more forward before the first backward",
    .constraints = "M a multiple of max(1, M div P)",
    .bubble = "makespan: (P-1)(F+B) where P divides M, F and B of one chunk",
    .memory = "min(M V, 2(P-r-1) + (V-1)G + 2) chunks on rank r, G = M / max(1, M div P)",
    .source = "JaxPP schedules.py (KimiK2)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
