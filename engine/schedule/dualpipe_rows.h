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
//
// Calls. DeepSeek's code gathers sends and receives and passes them to the network as one batch before each
// computation: as a rule the sends of what was computed since the last batch, then the receive of what comes
// next. Two receives go out earlier: in step 2 that of the next F0, beside F1's, and in step 3 that of F1, beside
// W's batch. In step 2 the output of F0 is sent after F1's, but by DualPipe's innermost ranks.
#pragma once

#include <deque>
#include <string_view>
#include <vector>

#include "engine/schedule/generator.h"

namespace plumbline {

struct PhaseStep {
  ActionKind kind = ActionKind::kForward;
  int phase = 0;
  int microbatch = 0;   // of that phase
  bool paired = false;  // with the next step
};

// A send or receive, in the batch that goes out before step `before`; after the last step if there is none.
struct PhaseCall {
  std::size_t before = 0;
  ActionKind kind = ActionKind::kSendForward;
  int phase = 0;
  int microbatch = 0;  // of that phase
};

enum class DualPipeEnding { kDeepSeek, kJaxPP };
// Whose order of calls: they differ in step 2 on the innermost rank.
enum class DualPipeCalls { kDualPipe, kDualPipeV };

class DualPipeRow {
 public:
  DualPipeRow(int depth, int position, int microbatches, DualPipeEnding ending = DualPipeEnding::kDeepSeek,
              DualPipeCalls calls = DualPipeCalls::kDualPipeV)
      : depth_(depth), position_(position), microbatches_(microbatches), ending_(ending), style_(calls) {}

  void build();
  const std::vector<PhaseStep>& steps() const { return steps_; }
  // As the code calls them, with those that the ends of the way have no partner for. Not JaxPP's.
  const std::vector<PhaseCall>& calls() const { return calls_; }

 private:
  enum class Receive { kNow, kDone };
  enum class Send { kNow, kLater };

  void call(ActionKind kind, int phase);
  void receive_forward(int phase) { call(ActionKind::kRecvForward, phase); }
  void send_forward(int phase) { call(ActionKind::kSendForward, phase); }
  void compute(ActionKind kind, int phase, bool paired = false);
  void forward(int phase, Receive receive = Receive::kNow, Send send = Send::kNow);
  void backward(int phase, ActionKind kind = ActionKind::kBackward, Send send = Send::kNow);
  void pair(int forward_phase, int backward_phase, Receive receive = Receive::kNow);
  void weight_grad();
  void warm_up(int inner);
  void cross(int times, bool innermost);
  void drain();
  void end_as_jaxpp(int inner);

  const int depth_, position_, microbatches_;
  const DualPipeEnding ending_;
  const DualPipeCalls style_;
  int computed_[2][2] = {};  // forwards and backwards of each phase
  int called_[4][2] = {};    // by kind of call and phase
  std::deque<PhaseStep> open_;
  std::vector<PhaseStep> steps_;
  std::vector<PhaseCall> calls_;
};

// The whole DualPipeV with either ending, two chunks a rank.
Result<Schedule> dualpipe_v_schedule(const GeneratorArgs& args, std::string_view name, DualPipeEnding ending);

// The calls of one rank of `dualpipe` or `dualpipe-v`, and the index in its row before which each goes out (the row's
// size: at the end). What has no partner, at the ends of a pipeline or on the same rank, is left out.
struct DualPipeCall {
  std::size_t before = 0;
  Action action;
};
std::vector<DualPipeCall> dualpipe_calls(const Schedule& schedule, int rank);

}  // namespace plumbline
