#include <algorithm>

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
  Emission(const Tables& tables, bool sharded, bool waits_for_slots, Overlap& overlap,
           std::vector<Item>& items)
      : tables_(tables),
        sharded_(sharded),
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
      case ActionKind::kReshard:
      case ActionKind::kReduceGrad:
        // With one replica there is nothing to gather or reduce.
        if (!sharded_) return {};
        return fail(ErrorCode::kUnsupported, fmt::format("{} with more than one data-parallel replica is not "
                                                         "lowered; remove the sharding actions or set "
                                                         "data-parallel-size to 1",
                                                         print_action(action)));
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
  void wait_for(unsigned slot, int microbatch) {
    items_.push_back(make_item(ItemOp::kWaitSlot, microbatch, 0, slot, 0));
  }

  Status compute(KernelKind kind, const Action& action) {
    const int stage = action.stage;
    const bool needs_gradient = kind == KernelKind::kBackward || kind == KernelKind::kInputGrad;
    if (waits_for_slots_) {
      if (kind == KernelKind::kForward && tables_.remote(stage, stage - 1, action.microbatch))
        wait_for(tables_.activation(stage), action.microbatch);
      if (needs_gradient && tables_.remote(stage, stage + 1, action.microbatch))
        wait_for(tables_.gradient(stage + 1), action.microbatch);
    }
    if (kind == KernelKind::kForward) overlap_.before_forward(items_);
    items_.push_back(
        make_item(ItemOp::kLaunch, action.microbatch, 0, tables_.kernel(kind, stage), kComputeStream));
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
  bool sharded_;
  bool waits_for_slots_;
  Overlap& overlap_;
  std::vector<Item>& items_;
  std::size_t kept_sends_ = 0;
};

}  // namespace

Status emit_actions(std::span<const Action> row, const Tables& tables, bool sharded, Overlap& overlap,
                    std::vector<Item>& items) {
  Emission emission(tables, sharded, true, overlap, items);
  for (const Action& action : row) PL_TRY(emission.action(action));
  emission.finish();
  return {};
}

Status emit_batched_actions(std::span<const Action> row, std::span<const DualPipeCall> calls,
                            const Tables& tables, Overlap& overlap, std::vector<Item>& items) {
  Emission emission(tables, false, false, overlap, items);
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
