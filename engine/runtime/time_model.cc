#include "engine/runtime/time_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/program/model_shape.h"
#include "engine/program/names.h"

namespace plumbline {

TimeModel::TimeModel(const RunConfig& config)
    : time_(config.time), ranks_a_machine_(config.sim.ranks_per_node) {
  if (config.memory.recompute != Recompute::kNone)
    recompute_ = recompute_times(model_shape(config), config.time.forward);
}

// One entry for all stages, or one a stage; none for what takes no time.
std::span<const Nanoseconds> TimeModel::by_stage(KernelKind kind) const {
  switch (kind) {
    case KernelKind::kForward:
      return time_.forward;
    case KernelKind::kBackward:
      return time_.backward;
    case KernelKind::kInputGrad:
      return time_.input_grad;
    case KernelKind::kWeightGrad:
      return time_.weight_grad;
    case KernelKind::kRecompute:
      return recompute_;
    case KernelKind::kOptimizerStep:
    case KernelKind::kSpeculativeStep:
      return {&time_.optimizer, 1};
    default:
      return {};
  }
}

Nanoseconds TimeModel::kernel(Rank rank, const Kernel& kernel) const {
  const std::span<const Nanoseconds> costs = by_stage(kernel.kind);
  if (costs.empty()) return 0;
  const Nanoseconds cost = costs[std::min<std::size_t>(kernel.stage, costs.size() - 1)];
  if (time_.slow.empty()) return cost;
  const auto slow = time_.slow.find(rank);
  if (slow == time_.slow.end()) return cost;
  return static_cast<Nanoseconds>(std::llround(static_cast<double>(cost) * slow->second));
}

void TimeModel::kernels(const std::vector<Kernel>& kernels, double* out) const {
  struct Costs {
    const Nanoseconds* at;
    std::size_t last;
  };
  static constexpr Nanoseconds kNothing = 0;
  std::array<Costs, kKernelKindNames.size()> costs;
  for (std::size_t kind = 0; kind < costs.size(); ++kind) {
    const std::span<const Nanoseconds> rows = by_stage(static_cast<KernelKind>(kind));
    costs[kind] = rows.empty() ? Costs{&kNothing, 0} : Costs{rows.data(), rows.size() - 1};
  }
  for (const Kernel& kernel : kernels) {
    const Costs& of = costs[static_cast<std::size_t>(kernel.kind)];
    *out++ = static_cast<double>(of.at[std::min<std::size_t>(kernel.stage, of.last)]);
  }
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
  // Where links are alike, the first of the ring is as slow as all.
  const std::size_t links = time_.links.empty() ? 1 : members.size();
  for (std::size_t i = 0; i < links; ++i) {
    slowest = std::max(slowest, message(members[i], members[(i + 1) % members.size()], share));
  }
  return slowest * (n - 1) * (kind == EndpointKind::kAllReduce ? 2 : 1);
}

}  // namespace plumbline
