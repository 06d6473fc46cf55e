// GPipe and 1F1B: one chunk a rank. All calls block.
//
//   1F1B, P = 3, M = 4:  rank 0  F0 F1 F2 B0 F3 B1 B2 B3
//                        rank 1  F0 F1 B0 F2 B1 F3 B2 B3
//                        rank 2  F0 B0 F1 B1 F2 B2 F3 B3
#include <algorithm>

#include "engine/program/script.h"
#include "engine/program/script_builder.h"

namespace plumbline::lowering {
namespace {

constexpr ChunkMicrobatch kNone{};

class Plain {
 public:
  explicit Plain(const ScriptArgs& args) : args_(args), build_(args) {}

  void receive_forward() { build_.call(CallName::kRF, kNone, build_.first_rank() ? -1 : 0, kNone, -1); }
  void receive_backward() { build_.call(CallName::kRB, kNone, -1, kNone, build_.last_rank() ? -1 : 0); }
  void send_forward(int m) { build_.call(CallName::kSF, kNone, -1, output(m), -1); }
  void send_backward(int m) { build_.call(CallName::kSB, input_grad(m), -1, kNone, -1); }
  void send_forward_receive_backward(int m) {
    build_.call(CallName::kSFRB, kNone, -1, output(m), build_.last_rank() ? -1 : 0);
  }
  void send_backward_receive_forward(int m) {
    build_.call(CallName::kSBRF, input_grad(m), build_.first_rank() ? -1 : 0, kNone, -1);
  }
  void forward(int m) { build_.forward(0, m); }
  void backward(int m) { build_.backward(0, m); }
  void free_output(int m) { build_.free_output(0, m); }
  Script take() { return build_.take(); }

 private:
  ChunkMicrobatch output(int m) const { return build_.last_rank() ? kNone : ChunkMicrobatch{0, m}; }
  ChunkMicrobatch input_grad(int m) const { return build_.first_rank() ? kNone : ChunkMicrobatch{0, m}; }

  ScriptArgs args_;
  ScriptBuilder build_;
};

}  // namespace

Script gpipe_script(const ScriptArgs& args) {
  Plain plain(args);
  for (int m = 0; m < args.microbatches; ++m) {
    plain.receive_forward();
    plain.forward(m);
    plain.send_forward(m);
    plain.free_output(m);
  }
  for (int m = 0; m < args.microbatches; ++m) {
    plain.receive_backward();
    plain.backward(m);
    plain.send_backward(m);
  }
  return plain.take();
}

Script plain_script(const ScriptArgs& args) {
  Plain plain(args);
  const int warmup = std::min(args.ranks - 1 - args.rank, args.microbatches);
  const int remaining = args.microbatches - warmup;
  for (int m = 0; m < warmup; ++m) {
    plain.receive_forward();
    plain.forward(m);
    plain.send_forward(m);
    if (!args.forward_only) plain.free_output(m);
  }
  if (remaining > 0) plain.receive_forward();
  for (int i = 0; i < remaining; ++i) {
    const bool last = i == remaining - 1;
    plain.forward(warmup + i);
    if (args.forward_only) {
      plain.send_forward(warmup + i);
      if (!last) plain.receive_forward();
      continue;
    }
    plain.send_forward_receive_backward(warmup + i);
    plain.free_output(warmup + i);
    plain.backward(i);
    if (last) {
      plain.send_backward(i);
    } else {
      plain.send_backward_receive_forward(i);
    }
  }
  if (args.forward_only) return plain.take();
  for (int i = 0; i < warmup; ++i) {
    plain.receive_backward();
    plain.backward(remaining + i);
    plain.send_backward(remaining + i);
  }
  return plain.take();
}

}  // namespace plumbline::lowering
