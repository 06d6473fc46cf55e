// GPipe: all forwards, then all backwards. The simplest schedule, and the file to copy for a new one.
//
//   P = 3, M = 4, a backward takes two steps (0..3 forward, a..d backward of the same microbatches, . idle)
//
//   rank 0   0 1 2 3 . . . . . . a a b b c c d d
//   rank 1   . 0 1 2 3 . . . a a b b c c d d . .
//   rank 2   . . 0 1 2 3 a a b b c c d d . . . .
//
// Bubble   (P-1)(F+B) of makespan, on every rank: the pipeline fills once and drains once.
// Memory   M live activations on every rank, whatever its place: this is what 1F1B improves.
// Source   Huang et al., GPipe, NeurIPS 2019. Backwards ascend, as in torch's ScheduleGPipe.
#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "gpipe";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  Schedule schedule = begin_schedule(args, kName);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    row.clear();
    for (int m = 0; m < args.microbatches; ++m) row.push_back(forward(rank, m));
    for (int m = 0; m < args.microbatches && !args.forward_only; ++m) row.push_back(backward(rank, m));
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_gpipe{Generator{
    .name = kName,
    .summary = "all forwards, then all backwards",
    .constraints = "one chunk a rank; M >= 1",
    .bubble = "makespan: (P-1)(F+B)",
    .memory = "M on every rank",
    .source = "Huang et al. 2019 (GPipe)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
