// Breadth-first: all forwards of the first chunk, then of the second, and so on; backwards chunk by chunk
// from the last. With sharded weights a chunk's weights are gathered once each way, which is why it exists;
// memory is GPipe's.
//
//   P = 2, V = 2, M = 2, a backward takes two steps
//   (0 1 forward, a b backward of the same microbatches, ' marks chunk 1, . idle)
//
//   rank 0   0  1  0' 1' .  .  .  a' a' b' b' a  a  b  b
//   rank 1   .  0  1  0' 1' a' a' b' b' a  a  b  b  .  .
//
// Bubble   (P-1)(F+B) of makespan for M >= P, F and B of one chunk.
// Memory   M V live chunk activations on every rank.
// Source   Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023.
#include "engine/schedule/looped_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "breadth-first";

Result<Schedule> make(const GeneratorArgs& args) {
  return looped_schedule(args, kName, BackwardOrder::kFirstInFirstOut);
}

}  // namespace

namespace detail {

RegisterGenerator register_breadth_first{Generator{
    .name = kName,
    .summary = "all microbatches through one chunk, then the next (looped BFS)",
    .constraints = "M >= 1",
    .bubble = "makespan: (P-1)(F+B) for M >= P, F and B of one chunk",
    .memory = "M V chunks on every rank",
    .source = "Lamy-Poirier 2023 (Breadth-First Pipeline Parallelism)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
