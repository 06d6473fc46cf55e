#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "engine/program/emit.h"
#include "engine/program/emit_batch.h"

namespace plumbline::lowering {
namespace {

constexpr std::size_t kMostHandlesAWait = 0xFFFF;

PostedOp posted_op(const Action& action, const Tables& tables) {
  const int stage = action.stage;
  const int m = action.microbatch;
  switch (action.kind) {
    case ActionKind::kSendForward:
      return {tables.send_forward(stage, m), m};
    case ActionKind::kRecvForward:
      return {tables.recv_forward(stage, m), m};
    case ActionKind::kSendBackward:
      return {tables.send_backward(stage, m), m};
    default:
      return {tables.recv_backward(stage, m), m};
  }
}

class Emission {
 public:
  Emission(const Tables& tables, const ModelBuffers* buffers, bool waits_for_slots, Overlap& overlap,
           std::vector<Item>& items)
      : tables_(tables),
        buffers_(buffers),
        waits_for_slots_(waits_for_slots),
        overlap_(overlap),
        items_(items) {}

  Status action(const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
        return compute(KernelKind::kForward, action);
      case ActionKind::kBackward:
        return compute(KernelKind::kBackward, action);
      case ActionKind::kInputGrad:
        return compute(KernelKind::kInputGrad, action);
      case ActionKind::kWeightGrad:
        return compute(KernelKind::kWeightGrad, action);
      case ActionKind::kSendForward:
      case ActionKind::kRecvForward:
      case ActionKind::kSendBackward:
      case ActionKind::kRecvBackward:
        return communicate(action);
      case ActionKind::kUnshard:
        if (!sharded()) return {};
        buffers_->unshard(action.stage, items_);
        gathering_.insert(action.stage);
        return {};
      case ActionKind::kReshard:
        if (!sharded()) return {};
        wait_for_gather(action.stage);
        buffers_->reshard(action.stage, items_);
        return {};
      case ActionKind::kReduceGrad:
        overlap_.reduce_now(action.stage, items_);  // nothing with one replica
        return {};
    }
    return {};
  }

  void finish() {
    while (kept_sends_ > 0) {
      const std::size_t count = std::min(kept_sends_, kMostHandlesAWait);
      items_.push_back(make_item(ItemOp::kWait, kNoMicrobatch, 0, 0, static_cast<unsigned>(count)));
      kept_sends_ -= count;
    }
  }

 private:
  bool sharded() const { return buffers_ != nullptr && buffers_->sharded(); }

  void wait_for_gather(int stage) {
    if (gathering_.erase(stage) > 0) wait_for(buffers_->parameters(stage), kNoMicrobatch);
  }

  void wait_for(unsigned slot, int microbatch) {
    items_.push_back(make_item(ItemOp::kWaitSlot, microbatch, 0, slot, 0));
  }

  Status compute(KernelKind kind, const Action& action) {
    overlap_.before_computation(items_);
    const int stage = action.stage;
    const bool needs_gradient = kind == KernelKind::kBackward || kind == KernelKind::kInputGrad;
    if (waits_for_slots_) {
      if (kind == KernelKind::kForward && tables_.remote(stage, stage - 1, action.microbatch))
        wait_for(tables_.activation(stage), action.microbatch);
      if (needs_gradient && tables_.remote(stage, stage + 1, action.microbatch))
        wait_for(tables_.gradient(stage + 1), action.microbatch);
    }
    if (kind == KernelKind::kForward) overlap_.before_forward(items_);
    wait_for_gather(stage);
    launch(tables_, kind, stage, action.microbatch, items_);
    if (kind == KernelKind::kBackward || kind == KernelKind::kWeightGrad) overlap_.after_backward(items_);
    return {};
  }

  Status communicate(const Action& action) {
    const bool next = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
    const int neighbour = next ? action.stage + 1 : action.stage - 1;
    if (!tables_.remote(action.stage, neighbour, action.microbatch)) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("{} has no partner: stage {} is {}; remove the action", print_action(action), neighbour,
                      neighbour < 0 ? "before the first stage"
                                    : "on the same rank, on no rank, or past the last stage"));
    }
    const bool send = is_send(action.kind);
    const unsigned queue = send ? 0U : static_cast<unsigned>(kSlotQueue);
    kept_sends_ += send ? 1 : 0;
    items_.push_back(item_of(posted_op(action, tables_), tables_, kAfterCompute | kHandle, queue));
    return {};
  }

  const Tables& tables_;
  const ModelBuffers* buffers_;
  bool waits_for_slots_;
  Overlap& overlap_;
  std::vector<Item>& items_;
  std::size_t kept_sends_ = 0;
  std::set<int> gathering_;  // stages whose gather nobody has waited for
};

}  // namespace

Status emit_actions(std::span<const Action> row, const Tables& tables, const ModelBuffers* buffers,
                    Overlap& overlap, std::vector<Item>& items) {
  Emission emission(tables, buffers, true, overlap, items);
  for (const Action& action : row) PL_TRY(emission.action(action));
  emission.finish();
  return {};
}

Status emit_batched_actions(std::span<const Action> row, std::span<const DualPipeCall> calls,
                            const Tables& tables, Overlap& overlap, std::vector<Item>& items) {
  Emission emission(tables, nullptr, false, overlap, items);
  std::vector<PostedOp> batch;
  std::size_t next = 0;
  for (std::size_t i = 0; i <= row.size(); ++i) {
    batch.clear();
    for (; next < calls.size() && calls[next].before <= i; ++next)
      batch.push_back(posted_op(calls[next].action, tables));
    emit_batch(batch, tables, BatchWait::kCompute, items);
    if (i < row.size()) PL_TRY(emission.action(row[i]));
  }
  return {};
}

}  // namespace plumbline::lowering
