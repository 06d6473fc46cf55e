#include <algorithm>
#include <array>

#include "engine/program/emit.h"
#include "engine/program/emit_batch.h"

namespace plumbline::lowering {
namespace {

class Emission {
 public:
  Emission(const Tables& tables, const ScriptEmission& options, Overlap& overlap, std::vector<Item>& items)
      : tables_(tables),
        ranks_(options.ranks),
        rank_(options.rank),
        style_(options.style),
        call_marks_(options.call_marks),
        overlap_(overlap),
        items_(items) {}

  void step(const ScriptStep& step) {
    switch (step.kind) {
      case StepKind::kForward:
        overlap_.before_forward(items_);
        compute(KernelKind::kForward, step.unit);
        return;
      case StepKind::kBackward:
        compute(KernelKind::kBackward, step.unit);
        overlap_.after_backward(items_);
        return;
      case StepKind::kWaitHandle:
        items_.push_back(make_item(ItemOp::kWait, kNoMicrobatch, 0, step.name, 1));
        return;
      case StepKind::kFreeOutput:
        free_output(step.unit);
        return;
      case StepKind::kPhase:
        mark(mark_of(static_cast<Phase>(step.name)));
        return;
      case StepKind::kCombined:
        mark(kCombinedMark);
        return;
      case StepKind::kCall:
        mark(mark_of(static_cast<CallName>(step.name)));
        call(step);
        return;
    }
  }

 private:
  int stage(int chunk) const { return chunk * ranks_ + rank_; }

  void mark(unsigned row) {
    if (call_marks_) items_.push_back(make_item(ItemOp::kMark, kNoMicrobatch, 0, row, 0));
  }

  void compute(KernelKind kind, ChunkMicrobatch unit) {
    launch(tables_, kind, stage(unit.chunk), unit.microbatch, items_);
  }

  void free_output(ChunkMicrobatch unit) {
    if (!tables_.policy().deallocate) return;
    const int from = stage(unit.chunk);
    const bool last = !tables_.remote(from, from + 1, unit.microbatch);
    if (last && !tables_.policy().free_loss) {
      if (call_marks_) items_.push_back(make_item(ItemOp::kMark, unit.microbatch, 0, kLossMark, 0));
      return;
    }
    const unsigned slot = last ? tables_.loss() : tables_.activation(from + 1);
    items_.push_back(make_item(ItemOp::kFree, unit.microbatch, 0, slot, 0));
  }

  // The call's operations in the order in which Megatron posts them (p2p_communication.py): a batch in the
  // order previous before next; separate calls so that even ranks send first and odd ranks receive first.
  std::size_t posted(const ScriptStep& step, std::array<PostedOp, 4>& out) const {
    std::size_t n = 0;
    const auto send_previous = [&] {
      if (step.send_previous.present())
        out[n++] = {tables_.send_backward(stage(step.send_previous.chunk), step.send_previous.microbatch),
                    step.send_previous.microbatch};
    };
    const auto recv_previous = [&] {
      if (step.recv_previous.present())
        out[n++] = {tables_.recv_forward(stage(step.recv_previous.chunk), step.recv_previous.microbatch),
                    step.recv_previous.microbatch};
    };
    const auto send_next = [&] {
      if (step.send_next.present())
        out[n++] = {tables_.send_forward(stage(step.send_next.chunk), step.send_next.microbatch),
                    step.send_next.microbatch};
    };
    const auto recv_next = [&] {
      if (step.recv_next.present())
        out[n++] = {tables_.recv_backward(stage(step.recv_next.chunk), step.recv_next.microbatch),
                    step.recv_next.microbatch};
    };
    if (style_ == P2pStyle::kBatched) {
      send_previous(), recv_previous(), send_next(), recv_next();
    } else if (rank_ % 2 == 0) {
      send_next(), recv_previous(), send_previous(), recv_next();
    } else {
      recv_previous(), send_next(), recv_next(), send_previous();
    }
    return n;
  }

  void op(const PostedOp& posted, unsigned flags, unsigned queue) {
    items_.push_back(item_of(posted, tables_, flags, queue));
  }

  void call(const ScriptStep& step) {
    std::array<PostedOp, 4> ops{};
    const std::size_t n = posted(step, ops);
    if (n == 0) return;
    if (tables_.policy().shapes) exchange_shapes(std::span(ops).first(n));
    const auto name = static_cast<CallName>(step.name);
    if (name == CallName::kSFRFAsync || name == CallName::kSBRBAsync) {
      const bool forward = name == CallName::kSFRFAsync;
      for (std::size_t i = 0; i < n; ++i) {
        const unsigned send_queue = forward ? kSendNextQueue : kSendPreviousQueue;
        const unsigned recv_queue = forward ? kRecvPreviousQueue : kRecvNextQueue;
        op(ops[i], kAfterCompute | kHandle, tables_.is_send(ops[i].endpoint) ? send_queue : recv_queue);
      }
      return;
    }
    if (style_ != P2pStyle::kBatched) {
      for (std::size_t i = 0; i < n; ++i) op(ops[i], kAfterCompute | (n == 1 ? kComputeWaits : kHandle), 0);
      if (n > 1) wait(n, 0);
      return;
    }
    emit_batch(std::span(ops).first(n), tables_, BatchWait::kHost, items_);
  }

  // In a group of its own, whatever the calls are; a receiver's host has read what came when the call begins.
  void exchange_shapes(std::span<const PostedOp> ops) {
    std::array<PostedOp, 4> shapes{};
    for (std::size_t i = 0; i < ops.size(); ++i)
      shapes[i] = {tables_.shape(ops[i].endpoint), ops[i].microbatch};
    emit_batch(std::span(shapes).first(ops.size()), tables_, BatchWait::kHost, items_);
    for (const PostedOp& shape : std::span(shapes).first(ops.size())) {
      if (!tables_.is_send(shape.endpoint))
        items_.push_back(make_item(ItemOp::kFree, shape.microbatch, 0, tables_.slot(shape.endpoint), 0));
    }
  }

  void wait(std::size_t count, unsigned flags) {
    items_.push_back(make_item(ItemOp::kWait, kNoMicrobatch, flags, 0, static_cast<unsigned>(count)));
  }

  const Tables& tables_;
  int ranks_;
  int rank_;
  P2pStyle style_;
  bool call_marks_;
  Overlap& overlap_;
  std::vector<Item>& items_;
};

}  // namespace

void emit_script(const Script& script, const Tables& tables, const ScriptEmission& options, Overlap& overlap,
                 std::vector<Item>& items) {
  Emission emission(tables, options, overlap, items);
  for (const ScriptStep& step : script) emission.step(step);
}

}  // namespace plumbline::lowering
