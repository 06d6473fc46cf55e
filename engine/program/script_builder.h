// What the script functions share: appending steps, and naming receives by their consumer.
#pragma once

#include <utility>
#include <vector>

#include "engine/program/script.h"

namespace plumbline::lowering {

class ScriptBuilder {
 public:
  explicit ScriptBuilder(const ScriptArgs& args)
      : args_(args),
        forwards_received_(static_cast<std::size_t>(args.chunks)),
        backwards_received_(static_cast<std::size_t>(args.chunks)) {
    if (args.reuse != nullptr) script_ = std::move(*args.reuse);
    script_.clear();
  }

  bool first_rank() const { return args_.first_rank(); }
  bool last_rank() const { return args_.last_rank(); }
  bool first_stage(int chunk) const { return args_.first_stage(chunk); }
  bool last_stage(int chunk) const { return args_.last_stage(chunk); }

  void phase(Phase phase) { add({StepKind::kPhase, static_cast<std::uint8_t>(phase), {}, {}, {}, {}, {}}); }
  void forward(int chunk, int microbatch) {
    add({StepKind::kForward, 0, {chunk, microbatch}, {}, {}, {}, {}});
  }
  void backward(int chunk, int microbatch) {
    add({StepKind::kBackward, 0, {chunk, microbatch}, {}, {}, {}, {}});
  }
  void combined_forward(int chunk, int microbatch) {
    add({StepKind::kCombined, 0, {}, {}, {}, {}, {}});
    forward(chunk, microbatch);
  }
  void combined_backward(int chunk, int microbatch) {
    add({StepKind::kCombined, 0, {}, {}, {}, {}, {}});
    backward(chunk, microbatch);
  }
  void combined_pair(ChunkMicrobatch ahead, ChunkMicrobatch back) {
    combined_forward(ahead.chunk, ahead.microbatch);
    backward(back.chunk, back.microbatch);
  }
  void free_output(int chunk, int microbatch) {
    add({StepKind::kFreeOutput, 0, {chunk, microbatch}, {}, {}, {}, {}});
  }

  void wait_handle(unsigned queue) {
    add({StepKind::kWaitHandle, static_cast<std::uint8_t>(queue), {}, {}, {}, {}, {}});
  }

  // A combined call. `send_next` and `send_previous` absent: nothing sent that way. `recv_previous_for` and
  // `recv_next_for` are chunks, -1 for no receive.
  void call(CallName name, ChunkMicrobatch send_previous, int recv_previous_for, ChunkMicrobatch send_next,
            int recv_next_for) {
    ScriptStep step;
    step.kind = StepKind::kCall;
    step.name = static_cast<std::uint8_t>(name);
    step.send_previous = send_previous;
    step.send_next = send_next;
    if (recv_previous_for >= 0)
      step.recv_previous = {recv_previous_for, forwards_received_[index(recv_previous_for)]++};
    if (recv_next_for >= 0) step.recv_next = {recv_next_for, backwards_received_[index(recv_next_for)]++};
    add(step);
  }

  Script take() { return std::move(script_); }

 private:
  static std::size_t index(int chunk) { return static_cast<std::size_t>(chunk); }
  void add(const ScriptStep& step) { script_.push_back(step); }

  ScriptArgs args_;
  Script script_;
  std::vector<std::int32_t> forwards_received_;   // per chunk
  std::vector<std::int32_t> backwards_received_;  // per chunk
};

}  // namespace plumbline::lowering
