// The eight steps that DualPipe and DualPipeV share. Two streams of microbatches ("phases") cross each
// other on every rank: DualPipe's run through the ranks in opposite directions, DualPipeV's are the two
// arms of one V. `depth` ranks lie between a rank's ends of the way and `position` of them are passed
// already.
//
//   1  F0               2(depth-position-1) times
//   2  F0, F1           position+1
//   3  I1, W, F1        depth-position-1
//   4  F0 & B1, F1 & B0 (overlapped pairs)  microbatches - 2 depth + position + 1; the innermost rank runs its
//                       first F0 and B1 one after the other
//   5  B1, F1 & B0      depth-position-1
//   6  B1, B0           position+1; from the middle on I instead of B
//   7  W, I0            depth-position-1
//   8  W                position+1
//
// Weight gradients that I leaves open wait in one queue, first in, first out. JaxPP ends differently, see
// dualpipe_v_jaxpp.cc.
#pragma once

#include <algorithm>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/schedule/generator.h"

namespace plumbline {

struct PhaseStep {
  ActionKind kind = ActionKind::kForward;
  int phase = 0;
  int microbatch = 0;   // of that phase
  bool paired = false;  // with the next step
};

enum class DualPipeEnding { kDeepSeek, kJaxPP };

class DualPipeRow {
 public:
  DualPipeRow(int depth, int position, int microbatches, DualPipeEnding ending = DualPipeEnding::kDeepSeek)
      : depth_(depth), position_(position), microbatches_(microbatches), ending_(ending) {}

  std::vector<PhaseStep> build() {
    const int inner = depth_ - position_ - 1;
    for (int i = 0; i < 2 * inner; ++i) forward(0);
    for (int i = 0; i < position_ + 1; ++i) {
      forward(0);
      forward(1);
    }
    for (int i = 0; i < inner; ++i) {
      input_grad(1);
      weight_grad();
      forward(1);
    }
    cross(microbatches_ - 2 * depth_ + position_ + 1, inner == 0);
    for (int i = 0; i < inner; ++i) {
      backward(1);
      pair(1, 0);
    }
    if (ending_ == DualPipeEnding::kJaxPP) {
      end_as_jaxpp(inner);
      return std::move(steps_);
    }
    drain();
    for (int i = 0; i < inner; ++i) {
      weight_grad();
      input_grad(0);
    }
    for (int i = 0; i < position_ + 1; ++i) weight_grad();
    return std::move(steps_);
  }

 private:
  void forward(int phase, bool paired = false) {
    steps_.push_back({ActionKind::kForward, phase, forwards_[phase]++, paired});
  }
  void backward(int phase) { steps_.push_back({ActionKind::kBackward, phase, backwards_[phase]++, false}); }
  void pair(int forward_phase, int backward_phase) {
    forward(forward_phase, true);
    backward(backward_phase);
  }
  void input_grad(int phase) {
    open_.push_back({ActionKind::kWeightGrad, phase, backwards_[phase], false});
    steps_.push_back({ActionKind::kInputGrad, phase, backwards_[phase]++, false});
  }
  void weight_grad() {
    steps_.push_back(open_.front());
    open_.pop_front();
  }

  void cross(int times, bool innermost) {
    for (int i = 0; i < times; ++i) {
      if (i == 0 && innermost) {
        forward(0);
        backward(1);
      } else {
        pair(0, 1);
      }
      pair(1, 0);
    }
  }

  // Odd positions split from the middle B1 on, even ones from the B0 behind it.
  void drain() {
    const int times = position_ + 1;
    for (int i = 0; i < times; ++i) {
      const bool behind = i > times / 2;
      const bool middle = i == times / 2;
      if (behind || (middle && position_ % 2 == 1)) {
        input_grad(1);
      } else {
        backward(1);
      }
      if (behind || middle) {
        input_grad(0);
      } else {
        backward(0);
      }
    }
  }

  // From the middle on one phase is split, phase 1 on odd positions and phase 0 on even ones, but never the
  // first stage's; then the I that are left, then all W, microbatch by microbatch.
  void end_as_jaxpp(int inner) {
    const auto backward_0 = [&](bool split) { split&& position_ > 0 ? input_grad(0) : backward(0); };
    for (int i = 0; i < position_ + 1; ++i) {
      const bool split = i >= (position_ + 1) / 2;
      split&& position_ % 2 == 1 ? input_grad(1) : backward(1);
      backward_0(split && position_ % 2 == 0);
    }
    for (int i = 0; i < inner; ++i) backward_0(true);
    std::sort(open_.begin(), open_.end(), [](const PhaseStep& a, const PhaseStep& b) {
      return a.microbatch != b.microbatch ? a.microbatch < b.microbatch : a.phase < b.phase;
    });
    while (!open_.empty()) weight_grad();
  }

  const int depth_, position_, microbatches_;
  const DualPipeEnding ending_;
  int forwards_[2] = {0, 0};
  int backwards_[2] = {0, 0};
  std::deque<PhaseStep> open_;
  std::vector<PhaseStep> steps_;
};

// The whole DualPipeV with either ending, two chunks a rank.
Result<Schedule> dualpipe_v_schedule(const GeneratorArgs& args, std::string_view name, DualPipeEnding ending);

}  // namespace plumbline
