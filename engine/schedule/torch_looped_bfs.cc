// torch's LoopedBFS: breadth-first with every chunk's backwards in reverse order of microbatches, last in,
// first out.
//
//   P = 2, V = 2, M = 2, a backward takes two steps
//   (0 1 forward, a b backward of the same microbatches, ' marks chunk 1, . idle)
//
//   rank 0   0  1  0' 1' .  .  .  b' b' a' a' b  b  a  a
//   rank 1   .  0  1  0' 1' b' b' a' a' b  b  a  a  .  .
//
// Bubble   (P-1)(F+B) of makespan for M >= P, F and B of one chunk.
// Memory   M V live chunk activations on every rank.
// Source   PyTorch torch/distributed/pipelining/schedules.py, ScheduleLoopedBFS (2.14.1).
#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "torch-looped-bfs";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kMany));
  Schedule schedule = begin_schedule(args, kName);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    row.clear();
    for (int stage = rank; stage < schedule.stages; stage += args.ranks) {
      for (int m = 0; m < args.microbatches; ++m) row.push_back(forward(stage, m));
    }
    for (int stage = schedule.stages - args.ranks + rank; stage >= 0 && !args.forward_only;
         stage -= args.ranks) {
      for (int m = args.microbatches - 1; m >= 0; --m) row.push_back(backward(stage, m));
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_torch_looped_bfs{Generator{
    .name = kName,
    .summary = "breadth-first, backwards last in, first out (torch's LoopedBFS)",
    .constraints = "M >= 1",
    .bubble = "makespan: (P-1)(F+B) for M >= P, F and B of one chunk",
    .memory = "M V chunks on every rank",
    .source = "PyTorch pipelining/schedules.py (ScheduleLoopedBFS)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
