#include "engine/runtime/timers.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace plumbline {
namespace {

constexpr std::array<const char*, 13> kNames{"forward-compute",
                                             "backward-compute",
                                             "forward-recv",
                                             "forward-send",
                                             "backward-recv",
                                             "backward-send",
                                             "forward-backward",
                                             "all-grads-sync",
                                             "embedding-grads-all-reduce",
                                             "params-all-gather",
                                             "optimizer-unscale-and-check-inf",
                                             "optimizer-clip-main-grad",
                                             "optimizer-inner-step"};

// Null: no timer of Megatron's.
const char* name_of_kernel(KernelKind kind) {
  switch (kind) {
    case KernelKind::kForward:
      return "forward-compute";
    case KernelKind::kBackward:
    case KernelKind::kInputGrad:
    case KernelKind::kWeightGrad:
      return "backward-compute";
    case KernelKind::kUnscaleCheck:
      return "optimizer-unscale-and-check-inf";
    case KernelKind::kNormSums:
      return "optimizer-clip-main-grad";
    case KernelKind::kOptimizerStep:
    case KernelKind::kSpeculativeStep:
    case KernelKind::kValidateStep:
      return "optimizer-inner-step";
    default:
      return nullptr;
  }
}

const char* name_of_communication(const EventLabel& label) {
  const bool receives = label.endpoint == EndpointKind::kRecv;
  switch (label.slot) {
    case SlotKind::kActivation:
      return receives ? "forward-recv" : "forward-send";
    case SlotKind::kGradient:
      return receives ? "backward-recv" : "backward-send";
    case SlotKind::kMainGrads:
      return "all-grads-sync";
    case SlotKind::kTiedGrad:
      return "embedding-grads-all-reduce";
    case SlotKind::kParameters:
    case SlotKind::kParameterShard:
      return "params-all-gather";
    case SlotKind::kFoundInf:
    case SlotKind::kLocalFoundInf:
      return "optimizer-unscale-and-check-inf";
    case SlotKind::kNormSums:
      return "optimizer-clip-main-grad";
    default:
      return nullptr;
  }
}

bool of_pipeline(const EventLabel& label) {
  if (!label.communication) return name_of_kernel(label.kernel) != nullptr && is_computation(label.kernel);
  return label.slot == SlotKind::kActivation || label.slot == SlotKind::kGradient;
}

}  // namespace

std::vector<TimerRow> megatron_timers(const RunRecord& record) {
  std::set<std::int32_t> steps;
  for (const StepRow& row : record.steps)
    if (!row.evaluation) steps.insert(row.step);
  if (steps.size() > 1) steps.erase(steps.begin());
  if (steps.empty()) return {};
  std::map<std::string, std::map<Rank, Nanoseconds>> sums;
  std::map<std::pair<Rank, std::int32_t>, std::pair<Nanoseconds, Nanoseconds>> spans;
  for (const RunEvent& event : record.events) {
    if (steps.count(event.step) == 0 || event.label >= record.labels.size()) continue;
    const EventLabel& label = record.labels[event.label];
    const char* name = label.communication ? name_of_communication(label) : name_of_kernel(label.kernel);
    if (name != nullptr) sums[name][event.rank] += event.end - event.start;
    if (!of_pipeline(label)) continue;
    const auto [span, fresh] = spans.try_emplace({event.rank, event.step}, event.start, event.end);
    if (fresh) continue;
    span->second.first = std::min(span->second.first, event.start);
    span->second.second = std::max(span->second.second, event.end);
  }
  for (const auto& [key, span] : spans) sums["forward-backward"][key.first] += span.second - span.first;
  const auto count = static_cast<double>(steps.size());
  std::vector<TimerRow> out;
  for (const char* name : kNames) {
    const auto found = sums.find(name);
    if (found == sums.end()) continue;
    TimerRow row{name, 0.0, 0.0, static_cast<int>(found->second.size())};
    const auto [least, most] =
        std::minmax_element(found->second.begin(), found->second.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    row.least = static_cast<double>(least->second) / count;
    row.most = static_cast<double>(most->second) / count;
    out.push_back(std::move(row));
  }
  double interval = 0.0;
  for (const StepRow& row : record.steps)
    if (steps.count(row.step) > 0) interval += static_cast<double>(row.end - row.begin) / count;
  out.push_back({"interval-time", interval, interval, record.ranks});
  return out;
}

}  // namespace plumbline
