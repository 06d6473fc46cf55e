// ZB-V, the hand-made zero-bubble V: two chunks a rank, split backward, made for F = I = W. All ranks hold
// the same, and as much as 1F1B's first rank.
//
//   P = 2, V = 2, M = 4
//   (0..3 forward, a..d input gradient, A..D weight gradient, ' marks the second chunk, . idle)
//
//   rank 0   0  1  2  0' a' A' 1' b' B' 3  a  A  2' c' C' b  B  3' d' D' c  C  d  D  .
//   rank 1   .  0  0' 1  1' a' A' 2  a  A  2' b' B' 3  b  B  3' c' C' c  d' d  C  D' D
//
// Order    rank r warms up with 2(P-r)-1 F of chunk 0, then r times F of chunk 1 and F of chunk 0, then P-r
//          times F, I, W of chunk 1; it goes on in turn with F, I, W of chunk 0 and F, I, W of chunk 1; at
//          the end r times I of both chunks, then P-r times I and W of chunk 0, then the W that are left.
//          Fewer than 2P-1 microbatches leave out what is too much.
// Bubble   0 of stage time for F = I = W and M >= 2P-1; makespan (P-1)F more.
// Memory   2P live chunk activations on every rank, held until W, for M >= 2P-1.
// Source   Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 6; PyTorch
//          torch/distributed/pipelining/schedules.py, ScheduleZBVZeroBubble, and the tag zero-bubble-v0.1.0
//          of sail-sg/zero-bubble-pipeline-parallelism (handcrafted_zb_v.py) have the same order.
#include <algorithm>

#include "engine/schedule/v_legs.h"

namespace plumbline {
namespace {

constexpr const char* kName = "zb-v";

class Row {
 public:
  Row(const GeneratorArgs& args, int rank)
      : args_(args), rank_(rank), total_(std::max(2 * args.ranks - 1, args.microbatches)) {}

  const std::vector<Action>& build() {
    const int behind = args_.ranks - rank_;
    for (int i = 0; i < 2 * behind - 1; ++i) add(ActionKind::kForward, 0);
    for (int i = 0; i < rank_; ++i) {
      add(ActionKind::kForward, 1);
      add(ActionKind::kForward, 0);
    }
    for (int i = 0; i < behind; ++i) step(1);
    while (done(ActionKind::kForward, 1) < total_) {
      if (done(ActionKind::kForward, 0) < total_) add(ActionKind::kForward, 0);
      add(ActionKind::kInputGrad, 0);
      add(ActionKind::kWeightGrad, 0);
      step(1);
    }
    for (int i = 0; i < rank_; ++i) {
      add(ActionKind::kInputGrad, 0);
      add(ActionKind::kInputGrad, 1);
    }
    for (int i = 0; i < behind; ++i) {
      add(ActionKind::kInputGrad, 0);
      add(ActionKind::kWeightGrad, 0);
    }
    for (const int chunk : {1, 0}) {
      while (done(ActionKind::kWeightGrad, chunk) < total_) add(ActionKind::kWeightGrad, chunk);
    }
    return row_;
  }

 private:
  int& done(ActionKind kind, int chunk) { return done_[static_cast<int>(kind)][chunk]; }

  void add(ActionKind kind, int chunk) {
    const int microbatch = done(kind, chunk)++;
    if (microbatch >= args_.microbatches) return;
    const int stage = v_stage(args_.ranks, rank_, chunk);
    row_.push_back(Action{microbatch, static_cast<std::uint16_t>(stage), kind, 0});
  }

  void step(int chunk) {
    add(ActionKind::kForward, chunk);
    add(ActionKind::kInputGrad, chunk);
    add(ActionKind::kWeightGrad, chunk);
  }

  const GeneratorArgs& args_;
  const int rank_;
  const int total_;  // microbatches of the pattern
  int done_[kActionKinds][2] = {};
  std::vector<Action> row_;
};

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, kName));
  Schedule schedule = begin_v_schedule(args, kName, Backward::kSplit);
  for (int rank = 0; rank < args.ranks; ++rank) schedule.add_row(Row(args, rank).build());
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_zb_v{Generator{
    .name = kName,
    .summary = "zero bubble on a V, made for F = I = W (torch's ZBVZeroBubble)",
    .constraints = "two chunks a rank; M >= 1, made for M >= 2P-1",
    .bubble = "stage time: 0 for F = I = W, M >= 2P-1",
    .memory = "2P chunks on every rank, until W, for M >= 2P-1",
    .source =
        "arXiv 2401.10241 (Zero Bubble), section 6; PyTorch pipelining/schedules.py (ScheduleZBVZeroBubble)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
