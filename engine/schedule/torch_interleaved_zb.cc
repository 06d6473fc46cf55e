// torch's "interleaved zero bubble" (ZB1P): torch's interleaved order with half the warm-up and the
// backward split. A rank's weight gradients run r backwards behind its input gradients.
//
//   P = 2, V = 1, M = 3 (0..2 forward, a..c input gradient, A..C weight gradient, . idle)
//
//   rank 0   0 1 . a A 2 b B c C
//   rank 1   . 0 a 1 b A 2 c B C
//
// Groups   of G = M / max(1, M div P), which must be whole.
// Warm-up  min(M V, (P-r-1) + (V-1)G) forwards on rank r; W of backward k follows backward k + r.
// Bubble   makespan: (P-1)(F+I-W) for V = 1, W <= I and M >= 2P; no formula is published for V > 1.
// Memory   min(M V, (P-r-1) + (V-1)G + 1 + r) live chunk activations on rank r, held until W.
// Source   PyTorch torch/distributed/pipelining/schedules.py, ScheduleInterleavedZeroBubble (2.14.1).
#include <algorithm>

#include "engine/schedule/generator_support.h"
#include "engine/schedule/interleaved_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "torch-interleaved-zb";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kMany));
  PL_TRY(refuse_forward_only(args, kName));
  const Result<int> group = group_of_rounds(args, kName);
  if (!group) return tl::unexpected(group.error());
  Schedule schedule = begin_schedule(args, kName, Backward::kSplit);
  const ScheduleTable table = schedule_table(args.microbatches, args.chunks, *group);
  const int total = args.microbatches * args.chunks;
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const int ahead = std::min(total, args.ranks - rank - 1 + (args.chunks - 1) * *group);
    row.clear();
    for (int k = 0; k < total + ahead; ++k) {
      if (k < total) row.push_back(virtual_action(table, schedule, rank, k, ActionKind::kForward));
      if (k < ahead) continue;
      row.push_back(virtual_action(table, schedule, rank, k - ahead, ActionKind::kInputGrad));
      if (k - ahead >= rank)
        row.push_back(virtual_action(table, schedule, rank, k - ahead - rank, ActionKind::kWeightGrad));
    }
    for (int k = std::max(0, total - rank); k < total; ++k) {
      row.push_back(virtual_action(table, schedule, rank, k, ActionKind::kWeightGrad));
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_torch_interleaved_zb{Generator{
    .name = kName,
    .summary = "interleaved with split backward (torch's InterleavedZeroBubble, ZB1P)",
    .constraints = "M a multiple of max(1, M div P); M < P is legal",
    .bubble = "makespan: (P-1)(F+I-W) for one chunk, W <= I, M >= 2P",
    .memory = "min(M V, P + (V-1)G) chunks on every rank, G = M / max(1, M div P)",
    .source = "PyTorch pipelining/schedules.py (ScheduleInterleavedZeroBubble)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
