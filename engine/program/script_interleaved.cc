// Interleaved 1F1B, the current algorithm and the one of January 2022. They differ in the warm-up count
// (2022: all forwards first when M = P), in who is told to receive during warm-up and cool-down, and in that
// the current one accepts groups of G microbatches and a partial last group.
#include "engine/program/script.h"
#include "engine/program/script_builder.h"
#include "engine/schedule/megatron_order.h"

namespace plumbline::lowering {
namespace {

constexpr ChunkMicrobatch kNone{};

// Which receive follows virtual microbatch k: the chunk it is for, or -1.
struct Prediction {
  int chunk = -1;
};

class Interleaved {
 public:
  Interleaved(const ScriptArgs& args, bool is_2022)
      : args_(args),
        is_2022_(is_2022),
        build_(args),
        table_(schedule_table(args.microbatches, args.chunks, is_2022 ? args.ranks : args.group_size)),
        total_(args.microbatches * args.chunks) {
    counts_ =
        is_2022 ? warmup_counts_2022(args.ranks, args.rank, args.chunks, args.microbatches, args.forward_only)
                : warmup_counts(args.ranks, args.rank, args.chunks, true, args.microbatches, args.group_size,
                                args.forward_only);
  }

  // Forward-only with handles kept (overlap_p2p_comm_warmup_flush): ranks behind the first fetch the next
  // input before they compute; the first rank, whose input comes round the ring, receives together with its
  // send. A send is waited for at once, because its output is deallocated; a receive when its input is
  // needed.
  Script run_flush() {
    mark(Phase::kWarmup);
    build_.call(CallName::kRF, kNone, build_.first_rank() ? -1 : 0, kNone, -1);
    for (int k = 0; k < total_; ++k) {
      if (k > 0 && !build_.first_stage(forward_chunk(k))) build_.wait_handle(kRecvPreviousQueue);
      const int recv = warmup_receive(k);
      const ChunkMicrobatch out = output(k);
      if (!build_.first_rank()) build_.call(CallName::kSFRFAsync, kNone, recv, kNone, -1);
      build_.forward(forward_chunk(k), microbatch(k));
      build_.call(CallName::kSFRFAsync, kNone, build_.first_rank() ? recv : -1, out, -1);
      if (out.present()) build_.wait_handle(kSendNextQueue);
      free_sent(out);
    }
    mark(Phase::kSteady);
    mark(Phase::kCooldown);
    mark(Phase::kMisc);
    return build_.take();
  }

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
  // Chunk and microbatch of a virtual microbatch; k = total wraps to 0 (the receive after the very last step is never
  // posted, but its chunk is still looked up).
  int forward_chunk(int k) const { return table_.chunk[wrapped(k)]; }
  int backward_chunk(int k) const { return args_.chunks - 1 - table_.chunk[wrapped(k)]; }
  int microbatch(int k) const { return table_.microbatch[wrapped(k)]; }
  std::size_t wrapped(int k) const { return static_cast<std::size_t>(((k % total_) + total_) % total_); }

  void mark(Phase phase) {
    if (!is_2022_) build_.phase(phase);
  }

  ChunkMicrobatch output(int k) const {
    const int chunk = forward_chunk(k);
    return build_.last_stage(chunk) ? kNone : ChunkMicrobatch{chunk, microbatch(k)};
  }
  ChunkMicrobatch input_grad(int k) const {
    const int chunk = backward_chunk(k);
    return build_.first_stage(chunk) ? kNone : ChunkMicrobatch{chunk, microbatch(k)};
  }

  // Steady-state rule of both algorithms, and the warm-up and cool-down rule of the current one. The leading
  // rank (first in forward, last in backward direction) gets the tensor that left the other end of the ring
  // P-1 steps ago.
  Prediction receive_forward_after(int k) const {
    if (!build_.first_rank()) return {forward_chunk(k + 1)};
    if (!is_2022_ && k < args_.ranks - 1) return {};
    const int sent = forward_chunk(k - (args_.ranks - 1));
    return {sent == args_.chunks - 1 ? -1 : sent + 1};
  }
  Prediction receive_backward_after(int k) const {
    if (!build_.last_rank()) return {backward_chunk(k + 1)};
    if (!is_2022_ && k < args_.ranks - 1) return {};
    const int sent = backward_chunk(k - (args_.ranks - 1));
    return {sent == 0 ? -1 : sent - 1};
  }

  int warmup_receive(int k) const {
    if (k == total_ - 1) return -1;
    if (!is_2022_) return receive_forward_after(k).chunk;
    const int next = forward_chunk(k + 1);
    return build_.first_rank() && next == 0 ? -1 : next;
  }
  int cooldown_receive(int k) const {
    if (k == total_ - 1) return -1;
    if (!is_2022_) return receive_backward_after(k).chunk;
    const int next = backward_chunk(k + 1);
    return build_.last_rank() && next == args_.chunks - 1 ? -1 : next;
  }

  void free_sent(ChunkMicrobatch sent) {
    if (sent.present()) build_.free_output(sent.chunk, sent.microbatch);
  }

  void warmup(int k) {
    build_.forward(forward_chunk(k), microbatch(k));
    const ChunkMicrobatch out = output(k);
    const int recv = warmup_receive(k);
    if (k == counts_.warmup - 1 && !args_.forward_only && !counts_.all_warmup) {
      build_.call(CallName::kSFBRFB, kNone, recv, out, build_.last_rank() ? -1 : args_.chunks - 1);
    } else {
      build_.call(CallName::kSFRF, kNone, recv, out, -1);
    }
    free_sent(out);
  }

  void steady(int k) {
    const int fk = k + counts_.warmup;
    build_.forward(forward_chunk(fk), microbatch(fk));
    build_.backward(backward_chunk(k), microbatch(k));
    const int recv_previous = k == counts_.remaining - 1 ? -1 : receive_forward_after(fk).chunk;
    const ChunkMicrobatch out = output(fk);
    build_.call(CallName::kSFBRFB, input_grad(k), recv_previous, out, receive_backward_after(k).chunk);
    free_sent(out);
  }

  void cooldown() {
    if (counts_.all_warmup) {
      build_.call(CallName::kRB, kNone, -1, kNone, build_.last_rank() ? -1 : args_.chunks - 1);
    }
    for (int k = counts_.remaining; k < total_; ++k) {
      build_.backward(backward_chunk(k), microbatch(k));
      build_.call(CallName::kSBRB, input_grad(k), -1, kNone, cooldown_receive(k));
    }
  }

  ScriptArgs args_;
  bool is_2022_;
  ScriptBuilder build_;
  ScheduleTable table_;
  WarmupCounts counts_;
  int total_;
};

}  // namespace

Script interleaved_script(const ScriptArgs& args) { return Interleaved(args, false).run(); }
Script interleaved_flush_script(const ScriptArgs& args) { return Interleaved(args, false).run_flush(); }
Script interleaved_2022_script(const ScriptArgs& args) { return Interleaved(args, true).run(); }

}  // namespace plumbline::lowering
