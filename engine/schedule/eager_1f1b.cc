// Eager 1F1B: 1F1B with twice the warm-up. A forward is on its way while the one before is still computed,
// so that a latency between ranks costs less; the price is memory.
//
//   P = 3, M = 5, a backward takes two steps (0..4 forward, a..e backward of the same microbatches, . idle)
//
//   rank 0   0 1 2 3 4 . . a a . b b . c c . d d . e e
//   rank 1   . 0 1 2 . a a 3 b b 4 c c . d d . e e . .
//   rank 2   . . 0 a a 1 b b 2 c c 3 d d 4 e e . . . .
//
// Bubble   (P-1)(F+B) of makespan, like 1F1B, when the latency between ranks is 0; with a latency, less
//          than 1F1B has.
// Memory   min(M, 2(P-r)-1) live activations on rank r.
// Source   JaxPP schedules.py, Eager1F1B; also called 1F1B with overlapped warm-up.
#include <algorithm>

#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "eager-1f1b";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  PL_TRY(refuse_forward_only(args, kName));
  Schedule schedule = begin_schedule(args, kName);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const int ahead = std::min(args.microbatches, 2 * (args.ranks - 1 - rank));
    row.clear();
    for (int m = 0; m < args.microbatches + ahead; ++m) {
      if (m < args.microbatches) row.push_back(forward(rank, m));
      if (m >= ahead) row.push_back(backward(rank, m - ahead));
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_eager_1f1b{Generator{
    .name = kName,
    .summary = "1F1B with twice the warm-up, which hides the latency between ranks",
    .constraints = "one chunk a rank; M >= 1",
    .bubble = "makespan: (P-1)(F+B) without latency",
    .memory = "min(M, 2(P-r)-1) on rank r",
    .source = "JaxPP schedules.py (Eager1F1B)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
