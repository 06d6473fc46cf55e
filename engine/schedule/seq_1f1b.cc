// Seq1F1B: 1F1B over slices of sequences. Every sequence is cut into S slices that pass one after another;
// forwards ascend, the backwards of a sequence descend, since later slices attend to earlier ones. Bubble
// and memory are 1F1B's with slices in place of microbatches.
//
//   P = 2, S = 2, M = 2, a backward takes two steps
//   (0 1 forward and a b backward of the first sequence's slices, 2 3 and c d of the second's, . idle)
//
//   rank 0   0 1 2 . . b b 3 a a . d d c c
//   rank 1   . 0 1 b b 2 a a 3 d d c c . .
//
// Warm-up  min(M S, P-r-2+S) forwards on rank r, counted in slices.
// Bubble   (P-1)(F+B) of makespan, F and B of one slice: 1/S of 1F1B's.
// Memory   min(M S, P-r-1+S) live slices on rank r.
// Source   Seq1F1B, arXiv 2406.03488; sail-sg/zero-bubble-pipeline-parallelism, scheduler/seq1f1b.py.
#include <algorithm>

#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "seq-1f1b";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  PL_TRY(refuse_forward_only(args, kName));
  Schedule schedule = begin_schedule(args, kName);
  const int total = schedule.microbatches;
  const auto descending = [&](int k) { return k - k % args.slices + args.slices - 1 - k % args.slices; };
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const int ahead = std::min(total, args.ranks - rank - 2 + args.slices);
    row.clear();
    for (int k = 0; k < total + ahead; ++k) {
      if (k < total) row.push_back(forward(rank, k));
      if (k >= ahead) row.push_back(backward(rank, descending(k - ahead)));
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_seq_1f1b{Generator{
    .name = kName,
    .summary = "1F1B over slices of sequences: 1/S of the bubble, less memory",
    .constraints = "one chunk a rank; M >= 1; S slices a sequence",
    .bubble = "makespan: (P-1)(F+B), F and B of one slice",
    .memory = "min(M S, P-r-1+S) slices on rank r",
    .source = "arXiv 2406.03488 (Seq1F1B); sail-sg seq1f1b.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
