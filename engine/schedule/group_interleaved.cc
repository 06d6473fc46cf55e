// The group-interleaved family (GIS): interleaved 1F1B with half the warm-up per rank and groups of G,
// where G may go below P. The backward is split but W is not delayed: what is passed on early is the input
// gradient.
//
//   P = 2, V = 2, M = 2, G = 1
//   (0 1 forward, a b input gradient, A B weight gradient, ' marks chunk 1, . idle)
//
//   rank 0   0  .  0' 1  .  a' A' 1' a  A  .  b' B' b  B
//   rank 1   .  0  .  0' a' A' 1  a  A  1' b' B' b  B  .
//
// Groups   ceil(P/2) <= G <= P; G = P is GIS, the smallest is GIS-H. A last group that is not full leaves
//          gaps.
// Warm-up  (P-r-1) + (V-1)G forwards on rank r before the first backward.
// Bubble   2(P-1) + (P-G)(V-1) steps of makespan for F = I = W, where G divides M and M >= 2G.
// Memory   G(V-1) + P live chunk activations on rank 0, for M large enough.
// Source   PipeOffload, arXiv 2503.01328, section 3 and table 1; sail-sg/zero-bubble-pipeline-parallelism,
//          group_interleaved_1f1b.py.
#include <fmt/format.h>

#include "engine/schedule/generator_support.h"
#include "engine/schedule/interleaved_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "group-interleaved";

Status check_group(int ranks, int group) {
  const int smallest = (ranks + 1) / 2;
  if (group >= smallest && group <= ranks) return {};
  return fail(
      ErrorCode::kConfig,
      fmt::format(
          "schedule {}: the group size is {}, which must be from half the ranks to all of them; set {} "
          "to {}",
          kName, group, smallest, ranks));
}

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kMany));
  PL_TRY(refuse_forward_only(args, kName));
  const int group = args.group_size == 0 ? args.ranks : args.group_size;
  PL_TRY(check_group(args.ranks, group));
  Schedule schedule = begin_schedule(args, kName, Backward::kSplit);
  // The pattern is one of whole groups: what the last group lacks keeps its place and is left out.
  const int groups = (args.microbatches + group - 1) / group;
  const ScheduleTable table = schedule_table(groups * group, args.chunks, group);
  const int total = groups * group * args.chunks;
  std::vector<Action> row;
  const auto add = [&](int rank, int k, ActionKind kind) {
    const Action action = virtual_action(table, schedule, rank, k, kind);
    if (action.microbatch < args.microbatches) row.push_back(action);
  };
  for (int rank = 0; rank < args.ranks; ++rank) {
    const int ahead = args.ranks - rank - 1 + (args.chunks - 1) * group;
    row.clear();
    for (int k = 0; k < total + ahead; ++k) {
      if (k < total) add(rank, k, ActionKind::kForward);
      if (k < ahead) continue;
      add(rank, k - ahead, ActionKind::kInputGrad);
      add(rank, k - ahead, ActionKind::kWeightGrad);
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_group_interleaved{Generator{
    .name = kName,
    .summary = "interleaved with less warm-up, in groups that may be smaller than P (GIS, GIS-H)",
    .constraints = "ceil(P/2) <= G <= P; M >= 1",
    .bubble = "makespan: 2(P-1) + (P-G)(V-1) steps for F = I = W, G divides M, M >= 2G",
    .memory = "G(V-1) + P chunks on rank 0",
    .source = "arXiv 2503.01328 (PipeOffload); sail-sg group_interleaved_1f1b.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
