// DualPipe: two pipelines over the same ranks in opposite directions, each with a copy of the model;
// forwards of one are overlapped with backwards of the other, so that communication hides behind
// computation.
//
//   P = 4, M = 8, a backward takes two steps, an overlapped pair three
//   (0..7 forward, a..h backward or input gradient, A..H weight gradient, ' marks the upper of a rank's two
//   stages, + joins a pair, . idle)
//
//   rank 0   0  1  2  4' e' E' 5' 3 +f'+f' .  6'+a +a  g' g' .  7'+b +b  h' h' c  C  d  D
//   rank 1   .  0  4' 1  5' 2  e' e' 6'+a +a  3 +f'+f' 7'+b +b  g' g' c  c  .  h' d  H' D
//   rank 2   .  4  0' 5  1' 6  a' a' 2'+e +e  7 +b'+b' 3'+f +f  c' c' g  g  .  d' h  D' H
//   rank 3   4  5  6  0' a' A' 1' 7 +b'+b' .  2'+e +e  c' c' .  3'+f +f  d' d' g  G  h  H
//
// Order    engine/schedule/dualpipe_rows.h, with depth P/2 and position min(r, P-1-r); phase 0 is the
//          pipeline that starts nearer. Microbatches 0 to M/2-1 go down, the others up.
// Bubble   (P/2-1)(FB+B-3W) of makespan on the rank that idles most, for F = I = W and FB the time of a
//          pair; with other costs, or FB < F+B, ranks idle differently, which the evaluator tells.
// Memory   P+1 live activations on every rank, held until W; twice the weights.
// Limits   P and M even, M >= 2P.
// Source   deepseek-ai/DualPipe, dualpipe/dualpipe.py; DeepSeek-V3 technical report.
#include <fmt/format.h>

#include "engine/schedule/dualpipe_rows.h"
#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "dualpipe";

Status check(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  PL_TRY(refuse_forward_only(args, kName));
  if (args.ranks % 2 != 0) {
    return fail(ErrorCode::kConfig,
                fmt::format("schedule {}: {} ranks have no middle; use an even number", kName, args.ranks));
  }
  if (args.microbatches % 2 != 0 || args.microbatches < 2 * args.ranks) {
    return fail(ErrorCode::kConfig,
                fmt::format("schedule {}: {} microbatches on {} ranks; use an even number of at "
                            "least {}",
                            kName, args.microbatches, args.ranks, 2 * args.ranks));
  }
  return {};
}

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check(args));
  const int ranks = args.ranks;
  const int half = args.microbatches / 2;
  Schedule schedule = begin_schedule(args, kName, Backward::kSplit);
  for (int stage = 0; stage < ranks; ++stage) schedule.rank_of_stage.push_back(ranks - 1 - stage);
  for (int m = 0; m < args.microbatches; ++m) schedule.pipeline_of.push_back(m < half ? 0 : 1);
  std::vector<Action> row;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool second_half = rank >= ranks / 2;
    const int position = second_half ? ranks - 1 - rank : rank;
    row.clear();
    DualPipeRow steps(ranks / 2, position, half);
    steps.build();
    for (const PhaseStep& step : steps.steps()) {
      const bool up = (step.phase == 1) != second_half;
      const int stage = up ? ranks - 1 - rank : rank;
      const int microbatch = up ? half + step.microbatch : step.microbatch;
      row.push_back(Action{microbatch, static_cast<std::uint16_t>(stage), step.kind, step.paired});
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_dualpipe{Generator{
    .name = kName,
    .summary = "two pipelines in opposite directions, forwards overlapped with backwards (DeepSeek)",
    .constraints = "one stage of each copy a rank; P and M even, M >= 2P",
    .bubble = "makespan, idlest rank: (P/2-1)(FB+B-3W) for F = I = W, FB one overlapped pair",
    .memory = "P+1 on every rank, until W; twice the weights",
    .source = "deepseek-ai/DualPipe, dualpipe.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
