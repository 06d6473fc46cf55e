// 1F1B: a rank runs as many forwards as there are ranks behind it, then alternates one forward and one
// backward, then drains. Same bubble as GPipe; memory bounded by the pipeline's depth instead of the number
// of microbatches.
//
//   P = 3, M = 4, a backward takes two steps (0..3 forward, a..d backward of the same microbatches, . idle)
//
//   rank 0   0 1 2 . . . . a a 3 b b . c c . d d
//   rank 1   . 0 1 . . a a 2 b b 3 c c . d d . .
//   rank 2   . . 0 a a 1 b b 2 c c 3 d d . . . .
//
// Bubble   (P-1)(F+B) of makespan.
// Memory   min(M, P-r) live activations on rank r.
// Limits   M < P is legal; a rank with M or more ranks behind it then only warms up and drains.
// Source   Narayanan et al., PipeDream-Flush, ICML 2021; Megatron-core schedules.py:
//          forward_backward_pipelining_without_interleaving. The January-2022 version has the same order.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/megatron_order.h"

namespace plumbline {
namespace {

constexpr const char* kName = "1f1b";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  Schedule schedule = begin_schedule(args, kName);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const WarmupCounts counts =
        warmup_counts(args.ranks, rank, 1, false, args.microbatches, args.ranks, args.forward_only);
    row.clear();
    for (int m = 0; m < counts.warmup; ++m) row.push_back(forward(rank, m));
    if (!args.forward_only) {
      for (int k = 0; k < counts.remaining; ++k) {
        row.push_back(forward(rank, counts.warmup + k));
        row.push_back(backward(rank, k));
      }
      for (int m = counts.remaining; m < counts.total; ++m) row.push_back(backward(rank, m));
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_one_f_one_b{Generator{
    .name = kName,
    .summary = "one forward, one backward; memory bounded by the depth",
    .constraints = "one chunk a rank; M >= 1, also M < P",
    .bubble = "makespan: (P-1)(F+B)",
    .memory = "min(M, P-r) on rank r",
    .source = "Narayanan et al. 2021 (PipeDream-Flush); Megatron-core schedules.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
