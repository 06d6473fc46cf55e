#include "engine/runtime/time_model.h"

#include <algorithm>
#include <cmath>

#include "engine/program/model_shape.h"

namespace plumbline {
namespace {

// One entry for all stages, or one a stage.
Nanoseconds of_stage(const std::vector<Nanoseconds>& costs, std::size_t stage) {
  if (costs.empty()) return 0;
  return stage < costs.size() ? costs[stage] : costs.back();
}

}  // namespace

TimeModel::TimeModel(const RunConfig& config)
    : time_(config.time), ranks_a_machine_(config.sim.ranks_per_node) {
  if (config.memory.recompute != Recompute::kNone)
    recompute_ = recompute_times(model_shape(config), config.time.forward);
}

Nanoseconds TimeModel::kernel(Rank rank, const Kernel& kernel) const {
  Nanoseconds cost = 0;
  switch (kernel.kind) {
    case KernelKind::kForward:
      cost = of_stage(time_.forward, kernel.stage);
      break;
    case KernelKind::kBackward:
      cost = of_stage(time_.backward, kernel.stage);
      break;
    case KernelKind::kInputGrad:
      cost = of_stage(time_.input_grad, kernel.stage);
      break;
    case KernelKind::kWeightGrad:
      cost = of_stage(time_.weight_grad, kernel.stage);
      break;
    case KernelKind::kRecompute:
      cost = of_stage(recompute_, kernel.stage);
      break;
    case KernelKind::kOptimizerStep:
    case KernelKind::kSpeculativeStep:
      cost = time_.optimizer;
      break;
    default:
      return 0;
  }
  if (time_.slow.empty()) return cost;
  const auto slow = time_.slow.find(rank);
  if (slow == time_.slow.end()) return cost;
  return static_cast<Nanoseconds>(std::llround(static_cast<double>(cost) * slow->second));
}

const LinkConfig& TimeModel::link(Rank a, Rank b) const {
  if (time_.links.empty()) return time_.link;
  const auto found = time_.links.find({std::min(a, b), std::max(a, b)});
  return found == time_.links.end() ? time_.link : found->second;
}

Nanoseconds TimeModel::message(Rank from, Rank to, Bytes bytes) const {
  if (from == to) return 0;
  const LinkConfig& way = link(from, to);
  return way.latency + transfer_time(bytes, way.bytes_per_second);
}

Nanoseconds TimeModel::collective(EndpointKind kind, const std::vector<Rank>& members, Bytes bytes) const {
  const auto n = static_cast<Bytes>(members.size());
  if (n < 2) return 0;
  const Bytes share = (bytes + n - 1) / n;
  Nanoseconds slowest = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    slowest = std::max(slowest, message(members[i], members[(i + 1) % members.size()], share));
  }
  return slowest * (n - 1) * (kind == EndpointKind::kAllReduce ? 2 : 1);
}

}  // namespace plumbline
