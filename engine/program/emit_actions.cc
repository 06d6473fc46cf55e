#include <algorithm>

#include <fmt/format.h>

#include "engine/program/emit.h"

namespace plumbline::lowering {
namespace {

constexpr std::size_t kMostHandlesAWait = 0xFFFF;

class Emission {
 public:
  Emission(const Tables& tables, bool sharded, Overlap& overlap, std::vector<Item>& items)
      : tables_(tables), sharded_(sharded), overlap_(overlap), items_(items) {}

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
        return communicate(action, action.stage + 1, tables_.send_forward(action.stage));
      case ActionKind::kRecvForward:
        return communicate(action, action.stage - 1, tables_.recv_forward(action.stage));
      case ActionKind::kSendBackward:
        return communicate(action, action.stage - 1, tables_.send_backward(action.stage));
      case ActionKind::kRecvBackward:
        return communicate(action, action.stage + 1, tables_.recv_backward(action.stage));
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
    if (kind == KernelKind::kForward && tables_.remote(stage, stage - 1))
      wait_for(tables_.activation(stage), action.microbatch);
    if (needs_gradient && tables_.remote(stage, stage + 1))
      wait_for(tables_.gradient(stage + 1), action.microbatch);
    if (kind == KernelKind::kForward) overlap_.before_forward(items_);
    items_.push_back(
        make_item(ItemOp::kLaunch, action.microbatch, 0, tables_.kernel(kind, stage), kComputeStream));
    if (kind == KernelKind::kBackward || kind == KernelKind::kWeightGrad) overlap_.after_backward(items_);
    return {};
  }

  Status communicate(const Action& action, int neighbour, unsigned endpoint) {
    if (!tables_.remote(action.stage, neighbour)) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("{} has no partner: stage {} is {}; remove the action", print_action(action), neighbour,
                      neighbour < 0 ? "before the first stage"
                                    : "on the same rank, on no rank, or past the last stage"));
    }
    const bool send = is_send(action.kind);
    const unsigned queue = send ? 0U : static_cast<unsigned>(kSlotQueue);
    kept_sends_ += send ? 1 : 0;
    items_.push_back(make_item(ItemOp::kOp, action.microbatch, kAfterCompute | kHandle, endpoint,
                               tables_.stream(endpoint) | queue << 8));
    return {};
  }

  const Tables& tables_;
  bool sharded_;
  Overlap& overlap_;
  std::vector<Item>& items_;
  std::size_t kept_sends_ = 0;
};

}  // namespace

Status emit_actions(std::span<const Action> row, const Tables& tables, bool sharded, Overlap& overlap,
                    std::vector<Item>& items) {
  Emission emission(tables, sharded, overlap, items);
  for (const Action& action : row) PL_TRY(emission.action(action));
  emission.finish();
  return {};
}

}  // namespace plumbline::lowering
