// InterleavedPlan: which chunk and microbatch a virtual microbatch is, and which receive goes out beside it, for the
// scripts of the interleaved schedules (script_interleaved.cc, script_overlap.cc). Only for those files.
#pragma once

#include "engine/program/script.h"
#include "engine/schedule/megatron_order.h"

namespace plumbline::lowering {

class InterleavedPlan {
 public:
  InterleavedPlan(const ScriptArgs& args, bool is_2022)
      : args_(args),
        is_2022_(is_2022),
        table_(schedule_table(args.microbatches, args.chunks, is_2022 ? args.ranks : args.group_size)),
        counts_(is_2022 ? warmup_counts_2022(args.ranks, args.rank, args.chunks, args.microbatches,
                                             args.forward_only)
                        : warmup_counts(args.ranks, args.rank, args.chunks, true, args.microbatches,
                                        args.group_size, args.forward_only, args.combined)),
        total_(args.microbatches * args.chunks) {}

  int total() const { return total_; }
  const WarmupCounts& counts() const { return counts_; }

  // Chunk and microbatch of a virtual microbatch; k = total wraps to 0 (the receive after the very last step is never
  // posted, but its chunk is still looked up).
  int forward_chunk(int k) const { return table_.chunk[wrapped(k)]; }
  int backward_chunk(int k) const { return args_.chunks - 1 - table_.chunk[wrapped(k)]; }
  int microbatch(int k) const { return table_.microbatch[wrapped(k)]; }

  // What forward k sends on, and what backward k sends back; absent at the ends of the model.
  ChunkMicrobatch output(int k) const {
    const int chunk = forward_chunk(k);
    return args_.last_stage(chunk) ? ChunkMicrobatch{} : ChunkMicrobatch{chunk, microbatch(k)};
  }
  ChunkMicrobatch input_grad(int k) const {
    const int chunk = backward_chunk(k);
    return args_.first_stage(chunk) ? ChunkMicrobatch{} : ChunkMicrobatch{chunk, microbatch(k)};
  }

  // The chunk that a receive beside virtual microbatch k is for, -1: none. Steady-state rule of both algorithms, and
  // the warm-up and cool-down rule of the current one. The leading rank (first in forward, last in backward
  // direction) gets the tensor that left the other end of the ring P-1 steps ago.
  int receive_forward_after(int k) const {
    if (!args_.first_rank()) return forward_chunk(k + 1);
    if (!is_2022_ && k < args_.ranks - 1) return -1;
    const int sent = forward_chunk(k - (args_.ranks - 1));
    return sent == args_.chunks - 1 ? -1 : sent + 1;
  }
  int receive_backward_after(int k) const {
    if (!args_.last_rank()) return backward_chunk(k + 1);
    if (!is_2022_ && k < args_.ranks - 1) return -1;
    const int sent = backward_chunk(k - (args_.ranks - 1));
    return sent == 0 ? -1 : sent - 1;
  }
  int warmup_receive(int k) const {
    if (k == total_ - 1) return -1;
    if (!is_2022_) return receive_forward_after(k);
    const int next = forward_chunk(k + 1);
    return args_.first_rank() && next == 0 ? -1 : next;
  }
  int cooldown_receive(int k) const {
    if (k == total_ - 1) return -1;
    if (!is_2022_) return receive_backward_after(k);
    const int next = backward_chunk(k + 1);
    return args_.last_rank() && next == args_.chunks - 1 ? -1 : next;
  }

 private:
  std::size_t wrapped(int k) const {
    if (k >= 0 && k < total_) return static_cast<std::size_t>(k);  // without the cost of dividing
    return static_cast<std::size_t>(((k % total_) + total_) % total_);
  }

  ScriptArgs args_;
  bool is_2022_;
  ScheduleTable table_;
  WarmupCounts counts_;
  int total_;
};

}  // namespace plumbline::lowering
