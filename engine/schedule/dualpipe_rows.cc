#include "engine/schedule/dualpipe_rows.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/schedule/v_legs.h"

namespace plumbline {

void DualPipeRow::build() {
  const int inner = depth_ - position_ - 1;
  warm_up(inner);
  cross(microbatches_ - 2 * depth_ + position_ + 1, inner == 0);
  for (int i = 0; i < inner; ++i) {
    backward(1);
    pair(1, 0);
  }
  if (ending_ == DualPipeEnding::kJaxPP) return end_as_jaxpp(inner);
  drain();
  for (int i = 0; i < inner; ++i) {
    weight_grad();
    backward(0, ActionKind::kInputGrad);
  }
  for (int i = 0; i < position_ + 1; ++i) weight_grad();
}

// Calls wait for the next computation; microbatches of a phase come in order.
void DualPipeRow::call(ActionKind kind, int phase) {
  int& next = called_[static_cast<int>(kind) - static_cast<int>(ActionKind::kSendForward)]
                     [static_cast<std::size_t>(phase)];
  calls_.push_back({steps_.size(), kind, phase, next++});
}

void DualPipeRow::compute(ActionKind kind, int phase, bool paired) {
  const bool is_forward = kind == ActionKind::kForward;
  int& next = computed_[is_forward ? 0 : 1][static_cast<std::size_t>(phase)];
  if (kind == ActionKind::kInputGrad) open_.push_back({ActionKind::kWeightGrad, phase, next, false});
  steps_.push_back({kind, phase, next++, paired});
}

void DualPipeRow::forward(int phase, Receive receive, Send send) {
  if (receive == Receive::kNow) receive_forward(phase);
  compute(ActionKind::kForward, phase);
  if (send == Send::kNow) send_forward(phase);
}

void DualPipeRow::backward(int phase, ActionKind kind, Send send) {
  call(ActionKind::kRecvBackward, phase);
  compute(kind, phase);
  if (send == Send::kNow) call(ActionKind::kSendBackward, phase);
}

void DualPipeRow::pair(int forward_phase, int backward_phase, Receive receive) {
  if (receive == Receive::kNow) receive_forward(forward_phase);
  call(ActionKind::kRecvBackward, backward_phase);
  compute(ActionKind::kForward, forward_phase, true);
  compute(ActionKind::kBackward, backward_phase);
  send_forward(forward_phase);
  call(ActionKind::kSendBackward, backward_phase);
}

void DualPipeRow::weight_grad() {
  steps_.push_back(open_.front());
  open_.pop_front();
}

// Steps 1 to 3.
void DualPipeRow::warm_up(int inner) {
  for (int i = 0; i < 2 * inner; ++i) forward(0);
  const int both = position_ + 1;
  const bool innermost = inner == 0;
  const bool at_once = innermost && style_ == DualPipeCalls::kDualPipe;
  receive_forward(0);
  for (int i = 0; i < both; ++i) {
    forward(0, Receive::kDone, at_once ? Send::kNow : Send::kLater);
    receive_forward(0);
    forward(1, Receive::kNow, !innermost || i + 1 < both ? Send::kNow : Send::kLater);
    if (!at_once) send_forward(0);
  }
  for (int i = 0; i < inner; ++i) {
    backward(1, ActionKind::kInputGrad);
    receive_forward(1);
    weight_grad();
    forward(1, Receive::kDone);
  }
}

void DualPipeRow::cross(int times, bool innermost) {
  for (int i = 0; i < times; ++i) {
    if (i == 0 && innermost) {
      forward(0, Receive::kDone, Send::kLater);
      send_forward(1);
      backward(1, ActionKind::kBackward, Send::kLater);
      send_forward(0);
      call(ActionKind::kSendBackward, 1);
    } else {
      pair(0, 1, i == 0 ? Receive::kDone : Receive::kNow);
    }
    pair(1, 0);
  }
}

// Odd positions split from the middle B1 on, even ones from the B0 behind it.
void DualPipeRow::drain() {
  const int times = position_ + 1;
  for (int i = 0; i < times; ++i) {
    const bool behind = i > times / 2;
    const bool middle = i == times / 2;
    const bool split_1 = behind || (middle && position_ % 2 == 1);
    backward(1, split_1 ? ActionKind::kInputGrad : ActionKind::kBackward);
    backward(0, behind || middle ? ActionKind::kInputGrad : ActionKind::kBackward);
  }
}

// From the middle on one phase is split, phase 1 on odd positions and phase 0 on even ones, but never the
// first stage's; then the I that are left, then all W, microbatch by microbatch.
void DualPipeRow::end_as_jaxpp(int inner) {
  const auto kind = [](bool split) { return split ? ActionKind::kInputGrad : ActionKind::kBackward; };
  for (int i = 0; i < position_ + 1; ++i) {
    const bool split = i >= (position_ + 1) / 2;
    backward(1, kind(split && position_ % 2 == 1));
    backward(0, kind(split && position_ % 2 == 0 && position_ > 0));
  }
  for (int i = 0; i < inner; ++i) backward(0, kind(position_ > 0));
  std::sort(open_.begin(), open_.end(), [](const PhaseStep& a, const PhaseStep& b) {
    return a.microbatch != b.microbatch ? a.microbatch < b.microbatch : a.phase < b.phase;
  });
  while (!open_.empty()) weight_grad();
}

Result<Schedule> dualpipe_v_schedule(const GeneratorArgs& args, std::string_view name,
                                     DualPipeEnding ending) {
  PL_TRY(check_args(args, name, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, name));
  if (args.microbatches < 2 * args.ranks) {
    return fail(ErrorCode::kConfig,
                fmt::format("schedule {}: {} microbatches are too few for {} stages; use {} or more", name,
                            args.microbatches, 2 * args.ranks, 2 * args.ranks));
  }
  Schedule schedule = begin_v_schedule(args, name, Backward::kSplit);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    row.clear();
    DualPipeRow steps(args.ranks, rank, args.microbatches, ending);
    steps.build();
    for (const PhaseStep& step : steps.steps()) {
      const int stage = v_stage(args.ranks, rank, step.phase);
      row.push_back(Action{step.microbatch, static_cast<std::uint16_t>(stage), step.kind, step.paired});
    }
    schedule.add_row(row);
  }
  return schedule;
}

std::vector<DualPipeCall> dualpipe_calls(const Schedule& schedule, int rank) {
  const int ranks = schedule.ranks;
  const bool both_ways = schedule.pipelines() == 2;
  const bool second_half = both_ways && 2 * rank >= ranks;
  const int half = schedule.microbatches / 2;
  DualPipeRow row(both_ways ? ranks / 2 : ranks, second_half ? ranks - 1 - rank : rank,
                  both_ways ? half : schedule.microbatches, DualPipeEnding::kDeepSeek,
                  both_ways ? DualPipeCalls::kDualPipe : DualPipeCalls::kDualPipeV);
  row.build();
  std::vector<DualPipeCall> out;
  for (const PhaseCall& call : row.calls()) {
    const bool up = both_ways && (call.phase == 1) != second_half;
    const int stage = both_ways ? (up ? ranks - 1 - rank : rank) : v_stage(ranks, rank, call.phase);
    const int microbatch = up ? half + call.microbatch : call.microbatch;
    const bool next = call.kind == ActionKind::kSendForward || call.kind == ActionKind::kRecvBackward;
    const int partner = next ? stage + 1 : stage - 1;
    if (partner < 0 || partner >= schedule.stages || schedule.rank_of(partner, microbatch) == rank) continue;
    out.push_back({call.before, Action{microbatch, static_cast<std::uint16_t>(stage), call.kind, 0}});
  }
  return out;
}

}  // namespace plumbline
