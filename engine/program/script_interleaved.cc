// Interleaved 1F1B, the current algorithm and the one of January 2022. They differ in the warm-up count
// (2022: all forwards first when M = P), in who is told to receive during warm-up and cool-down, and in that
// the current one accepts groups of G microbatches and a partial last group.
#include "engine/program/interleaved_plan.h"
#include "engine/program/script.h"
#include "engine/program/script_builder.h"

namespace plumbline::lowering {
namespace {

constexpr ChunkMicrobatch kNone{};

class Interleaved {
 public:
  Interleaved(const ScriptArgs& args, bool is_2022)
      : args_(args), is_2022_(is_2022), build_(args), plan_(args, is_2022), counts_(plan_.counts()) {}

  Script run() {
    mark(Phase::kWarmup);
    build_.call(CallName::kRF, kNone, build_.first_rank() ? -1 : 0, kNone, -1);
    for (int k = 0; k < counts_.warmup; ++k) warmup(k);
    mark(Phase::kSteady);
    for (int k = 0; k < counts_.remaining; ++k) steady(k);
    mark(Phase::kCooldown);
    if (!args_.forward_only) cooldown();
    mark(Phase::kMisc);
    return build_.take();
  }

 private:
  void mark(Phase phase) {
    if (!is_2022_) build_.phase(phase);
  }

  void forward(int k) { build_.forward(plan_.forward_chunk(k), plan_.microbatch(k)); }
  void backward(int k) { build_.backward(plan_.backward_chunk(k), plan_.microbatch(k)); }

  void free_sent(ChunkMicrobatch sent) {
    if (sent.present()) build_.free_output(sent.chunk, sent.microbatch);
  }

  void warmup(int k) {
    forward(k);
    const ChunkMicrobatch out = plan_.output(k);
    const int recv = plan_.warmup_receive(k);
    if (k == counts_.warmup - 1 && !args_.forward_only && !counts_.all_warmup) {
      build_.call(CallName::kSFBRFB, kNone, recv, out, build_.last_rank() ? -1 : args_.chunks - 1);
    } else {
      build_.call(CallName::kSFRF, kNone, recv, out, -1);
    }
    free_sent(out);
  }

  void steady(int k) {
    const int fk = k + counts_.warmup;
    forward(fk);
    backward(k);
    const int recv_previous = k == counts_.remaining - 1 ? -1 : plan_.receive_forward_after(fk);
    const ChunkMicrobatch out = plan_.output(fk);
    build_.call(CallName::kSFBRFB, plan_.input_grad(k), recv_previous, out, plan_.receive_backward_after(k));
    free_sent(out);
  }

  void cooldown() {
    if (counts_.all_warmup) {
      build_.call(CallName::kRB, kNone, -1, kNone, build_.last_rank() ? -1 : args_.chunks - 1);
    }
    for (int k = counts_.remaining; k < plan_.total(); ++k) {
      backward(k);
      build_.call(CallName::kSBRB, plan_.input_grad(k), -1, kNone, plan_.cooldown_receive(k));
    }
  }

  ScriptArgs args_;
  bool is_2022_;
  ScriptBuilder build_;
  InterleavedPlan plan_;
  WarmupCounts counts_;
};

}  // namespace

Script interleaved_script(const ScriptArgs& args) { return Interleaved(args, false).run(); }
Script interleaved_2022_script(const ScriptArgs& args) { return Interleaved(args, true).run(); }

}  // namespace plumbline::lowering
