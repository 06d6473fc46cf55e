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
#include "engine/schedule/looped_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "torch-looped-bfs";

Result<Schedule> make(const GeneratorArgs& args) {
  return looped_schedule(args, kName, BackwardOrder::kLastInFirstOut);
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
