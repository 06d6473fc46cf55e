// Interleaved 1F1B with handles kept: communication runs beside computation, and the host waits where its result is
// needed (overlap_p2p_comm; megatron.md A.7). Three forms.
//
//   overlap   steady state alone: after a forward its output is sent and the next input received, then the backward
//             runs; warm-up and cool-down block
//   flush     warm-up and cool-down too (overlap_p2p_comm_warmup_flush): ranks behind the leading one fetch the next
//             tensor before they compute, the leading rank, whose tensors come round the ring, together with its send
//   combined  the steady state computes a forward and a backward as one step, their layers interleaved, so that the
//             all-to-alls of experts hide (overlap_moe_expert_parallel_comm); one more forward in the warm-up keeps
//             the two apart. With either of the above; both sends then follow the step
//
// A send of an output is waited for at once where outputs are deallocated, which is what Megatron does against a race
// between the send and the release.
#include "engine/program/interleaved_plan.h"
#include "engine/program/script.h"
#include "engine/program/script_builder.h"

namespace plumbline::lowering {
namespace {

constexpr ChunkMicrobatch kNone{};

class Overlapped {
 public:
  Overlapped(const ScriptArgs& args, bool flush)
      : args_(args), flush_(flush), build_(args), plan_(args, false), counts_(plan_.counts()) {}

  Script run() {
    build_.phase(Phase::kWarmup);
    build_.call(CallName::kRF, kNone, build_.first_rank() ? -1 : 0, kNone, -1);
    for (int k = 0; k < counts_.warmup; ++k) warmup(k);
    if (!args_.forward_only && counts_.remaining > 0)
      backward_call(kNone, build_.last_rank() ? -1 : args_.chunks - 1);
    build_.phase(Phase::kSteady);
    for (int k = 0; k < counts_.remaining; ++k) args_.combined ? combined(k) : steady(k);
    free_previous();
    build_.phase(Phase::kCooldown);
    if (!args_.forward_only) cooldown();
    build_.phase(Phase::kMisc);
    return build_.take();
  }

 private:
  // Calls whose handles are kept, and the waits that they need.
  void forward_call(ChunkMicrobatch out, int recv) {
    build_.call(CallName::kSFRFAsync, kNone, recv, out, -1);
    if (recv >= 0) ++inputs_;
  }
  void backward_call(ChunkMicrobatch grad, int recv) {
    build_.call(CallName::kSBRBAsync, grad, -1, kNone, recv);
    if (recv >= 0) ++gradients_;
  }
  void wait_for_input(int chunk) {
    if (build_.first_stage(chunk) || inputs_ == 0) return;
    --inputs_;
    build_.wait_handle(kRecvPreviousQueue);
  }
  void wait_for_gradient(int chunk) {
    if (build_.last_stage(chunk) || gradients_ == 0) return;
    --gradients_;
    build_.wait_handle(kRecvNextQueue);
  }
  // The send of the gradient before this one; then this one is kept.
  void wait_for_previous_send(ChunkMicrobatch grad) {
    if (sending_) build_.wait_handle(kSendPreviousQueue);
    sending_ = grad.present();
  }
  void send_output(ChunkMicrobatch out, int recv) {
    forward_call(out, recv);
    if (out.present()) build_.wait_handle(kSendNextQueue);
  }
  void free(ChunkMicrobatch sent) {
    if (sent.present()) build_.free_output(sent.chunk, sent.microbatch);
  }
  void free_previous() {
    free(unfreed_);
    unfreed_ = kNone;
  }

  void forward(int k) {
    const int chunk = plan_.forward_chunk(k);
    args_.combined ? build_.combined_forward(chunk, plan_.microbatch(k))
                   : build_.forward(chunk, plan_.microbatch(k));
  }
  void backward(int k) {
    const int chunk = plan_.backward_chunk(k);
    args_.combined ? build_.combined_backward(chunk, plan_.microbatch(k))
                   : build_.backward(chunk, plan_.microbatch(k));
  }

  void warmup(int k) {
    const int recv = plan_.warmup_receive(k);
    const ChunkMicrobatch out = plan_.output(k);
    if (!flush_) {
      forward(k);
      build_.call(CallName::kSFRF, kNone, recv, out, -1);
    } else {
      if (k > 0) wait_for_input(plan_.forward_chunk(k));
      if (!build_.first_rank()) forward_call(kNone, recv);
      forward(k);
      send_output(out, build_.first_rank() ? recv : -1);
    }
    free(out);
  }

  int steady_receive(int k, int fk) const {
    return k == counts_.remaining - 1 ? -1 : plan_.receive_forward_after(fk);
  }

  void steady(int k) {
    const int fk = k + counts_.warmup;
    wait_for_input(plan_.forward_chunk(fk));
    free_previous();
    forward(fk);
    const ChunkMicrobatch out = plan_.output(fk);
    send_output(out, steady_receive(k, fk));
    unfreed_ = out;
    wait_for_gradient(plan_.backward_chunk(k));
    backward(k);
    const ChunkMicrobatch grad = plan_.input_grad(k);
    backward_call(grad, plan_.receive_backward_after(k));
    wait_for_previous_send(grad);
  }

  // Here the last stage's output, the loss, is released like any other.
  void combined(int k) {
    const int fk = k + counts_.warmup;
    wait_for_input(plan_.forward_chunk(fk));
    free_previous();
    wait_for_gradient(plan_.backward_chunk(k));
    build_.combined_pair({plan_.forward_chunk(fk), plan_.microbatch(fk)},
                         {plan_.backward_chunk(k), plan_.microbatch(k)});
    send_output(plan_.output(fk), steady_receive(k, fk));
    unfreed_ = {plan_.forward_chunk(fk), plan_.microbatch(fk)};
    const ChunkMicrobatch grad = plan_.input_grad(k);
    backward_call(grad, plan_.receive_backward_after(k));
    wait_for_previous_send(grad);
  }

  void cooldown() {
    if (counts_.all_warmup) {
      build_.call(CallName::kRB, kNone, -1, kNone, build_.last_rank() ? -1 : args_.chunks - 1);
    }
    for (int k = counts_.remaining; k < plan_.total(); ++k) {
      const int recv = plan_.cooldown_receive(k);
      const ChunkMicrobatch grad = plan_.input_grad(k);
      wait_for_gradient(plan_.backward_chunk(k));
      if (!flush_) {
        backward(k);
        build_.call(CallName::kSBRB, grad, -1, kNone, recv);
        continue;
      }
      if (!build_.last_rank()) backward_call(kNone, recv);
      backward(k);
      backward_call(grad, build_.last_rank() ? recv : -1);
      wait_for_previous_send(grad);
    }
    if (sending_) build_.wait_handle(kSendPreviousQueue);
  }

  ScriptArgs args_;
  bool flush_;
  ScriptBuilder build_;
  InterleavedPlan plan_;
  WarmupCounts counts_;
  int inputs_ = 0, gradients_ = 0;  // receives in flight
  bool sending_ = false;            // a gradient's send whose handle is kept
  ChunkMicrobatch unfreed_;         // output of the step before
};

}  // namespace

Script interleaved_overlap_script(const ScriptArgs& args) { return Overlapped(args, false).run(); }
Script interleaved_flush_script(const ScriptArgs& args) { return Overlapped(args, true).run(); }

}  // namespace plumbline::lowering
