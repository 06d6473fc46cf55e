// Interleaved 1F1B as torch.distributed.pipelining runs it: the microbatches pass in M div P equal rounds,
// however large these are ("flexible" interleaving), instead of in groups of P with a rest.
//
//   P = 2, V = 2, M = 3: one round of 3, a backward takes two steps
//   (0..2 forward, a..c backward of the same microbatches, ' marks chunk 1, . idle)
//
//   rank 0   0  1  2  0' 1' 2' .  a' a' .  b' b' .  c' c' a  a  b  b  c  c
//   rank 1   .  0  1  2  0' a' a' 1' b' b' 2' c' c' a  a  b  b  c  c  .  .
//
// Groups   of G = M / max(1, M div P), which must be whole.
// Warm-up  min(M V, 2(P-r-1) + (V-1)G) forwards on rank r.
// Bubble   (P-1)(F+B) of makespan for M >= P, F and B of one chunk. M < P is legal and leaves more.
// Memory   min(M V, 2(P-r-1) + (V-1)G + 1) live chunk activations on rank r.
// Source   PyTorch torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B (2.14.1); JaxPP
//          Interleaved1F1B gives the same orders. The idle cells that torch's rows begin with are left out:
//          they mean nothing.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/interleaved_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "torch-interleaved";

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
        warmup_counts(args.ranks, rank, args.chunks, true, args.microbatches, *group, false);
    interleaved_row(table, counts, schedule, rank, &row);
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_torch_interleaved{Generator{
    .name = kName,
    .summary = "several chunks a rank, in equal rounds (torch's Interleaved1F1B)",
    .constraints = "M a multiple of max(1, M div P); M < P is legal",
    .bubble = "makespan: (P-1)(F+B) for M >= P, F and B of one chunk",
    .memory = "min(M V, 2(P-r-1) + (V-1)G + 1) chunks on rank r, G = M / max(1, M div P)",
    .source = "PyTorch pipelining/schedules.py (ScheduleInterleaved1F1B)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
