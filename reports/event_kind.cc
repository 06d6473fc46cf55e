#include "reports/event_kind.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline {
namespace {

std::string_view endpoint_words(EndpointKind kind) {
  switch (kind) {
    case EndpointKind::kSend:
      return "send";
    case EndpointKind::kRecv:
      return "receive";
    case EndpointKind::kAllReduce:
      return "all-reduce";
    case EndpointKind::kReduce:
      return "reduce";
    case EndpointKind::kBroadcast:
      return "broadcast";
    case EndpointKind::kAllGather:
      return "all-gather";
    case EndpointKind::kReduceScatter:
      return "reduce-scatter";
  }
  return "operation";
}

std::string_view slot_words(SlotKind kind) {
  switch (kind) {
    case SlotKind::kActivation:
      return "activation";
    case SlotKind::kGradient:
      return "gradient";
    case SlotKind::kStash:
      return "stash";
    case SlotKind::kRebuilt:
      return "recomputed activations";
    case SlotKind::kMainGrads:
      return "gradients";
    case SlotKind::kParameters:
      return "parameters";
    case SlotKind::kParameterShard:
      return "parameter shard";
    case SlotKind::kShape:
      return "shape";
    case SlotKind::kTiedGrad:
      return "tied gradient";
    case SlotKind::kFoundInf:
      return "found_inf";
    case SlotKind::kLocalFoundInf:
      return "own found_inf";
    case SlotKind::kSnapshot:
      return "snapshot";
    case SlotKind::kNormSums:
      return "norm sums";
    case SlotKind::kOther:
      break;
  }
  return "";
}

std::string_view kernel_words(KernelKind kind) {
  switch (kind) {
    case KernelKind::kForward:
      return "forward";
    case KernelKind::kBackward:
      return "backward";
    case KernelKind::kInputGrad:
      return "input gradient";
    case KernelKind::kWeightGrad:
      return "weight gradient";
    case KernelKind::kZeroGrad:
      return "zero gradients";
    case KernelKind::kCollectTied:
      return "collect tied gradient";
    case KernelKind::kMergeTied:
      return "merge tied gradient";
    case KernelKind::kUnscaleCheck:
      return "unscale and check";
    case KernelKind::kNormSums:
      return "norm sums";
    case KernelKind::kOptimizerStep:
      return "optimizer step";
    case KernelKind::kSkipStep:
      return "skip the step";
    case KernelKind::kSpeculativeStep:
      return "speculative step";
    case KernelKind::kValidateStep:
      return "validate the step";
    case KernelKind::kUnshard:
      return "begin to gather parameters";
    case KernelKind::kReshard:
      return "drop gathered parameters";
    case KernelKind::kRecompute:
      return "recomputation";
    case KernelKind::kOther:
      break;
  }
  return "";
}

// A slot is named after the stage it enters; torch's grammar names the stage that executes the operation.
bool p2p_action(const EventLabel& label, std::string* kind, int* stage) {
  if (!label.communication || !is_p2p(label.endpoint)) return false;
  const bool send = label.endpoint == EndpointKind::kSend;
  if (label.slot == SlotKind::kActivation) {
    *kind = send ? "SEND_F" : "RECV_F";
    *stage = send ? label.stage - 1 : label.stage;
  } else if (label.slot == SlotKind::kGradient) {
    *kind = send ? "SEND_B" : "RECV_B";
    *stage = send ? label.stage : label.stage - 1;
  } else {
    return false;
  }
  return true;
}

std::string number(std::int32_t microbatch) { return microbatch < 0 ? "" : fmt::format("{}", microbatch); }

}  // namespace

WorkKind work_kind(const EventLabel& label) {
  if (label.communication) {
    if (label.endpoint == EndpointKind::kSend) return WorkKind::kSend;
    if (label.endpoint == EndpointKind::kRecv) return WorkKind::kRecv;
    return WorkKind::kCollective;
  }
  switch (label.kernel) {
    case KernelKind::kForward:
      return WorkKind::kForward;
    case KernelKind::kBackward:
      return WorkKind::kBackward;
    case KernelKind::kInputGrad:
      return WorkKind::kInputGrad;
    case KernelKind::kWeightGrad:
      return WorkKind::kWeightGrad;
    case KernelKind::kRecompute:
      return WorkKind::kRecompute;
    default:
      return WorkKind::kOptimizer;
  }
}

std::string_view work_letter(WorkKind kind) {
  constexpr std::string_view kLetters[kWorkKinds] = {"F", "B", "I", "W", "OPT", "SEND", "RECV", "COLL", "R"};
  return kLetters[static_cast<std::size_t>(kind)];
}

std::string_view work_title(WorkKind kind) {
  constexpr std::string_view kTitles[kWorkKinds] = {"forward",         "backward",   "input gradient",
                                                    "weight gradient", "optimizer",  "send",
                                                    "receive",         "collective", "recomputation"};
  return kTitles[static_cast<std::size_t>(kind)];
}

bool drawable(const RunRecord& record, const RunEvent& event) {
  return event.rank >= 0 && event.rank < record.ranks && event.label < record.labels.size() &&
         event.start >= 0 && event.start <= event.ready && event.ready <= event.end;
}

std::string short_name(const RunRecord& record, const RunEvent& event) {
  const EventLabel& label = record.labels[event.label];
  std::string kind;
  int stage = 0;
  if (p2p_action(label, &kind, &stage)) return kind + number(event.microbatch);
  const WorkKind work = work_kind(label);
  if (is_pipeline(work)) return std::string(work_letter(work)) + number(event.microbatch);
  return label.name.empty() ? std::string(work_letter(work)) : label.name;
}

std::string action_name(const RunRecord& record, const RunEvent& event) {
  const EventLabel& label = record.labels[event.label];
  std::string kind;
  int stage = 0;
  if (p2p_action(label, &kind, &stage)) return fmt::format("{}{}{}", stage, kind, number(event.microbatch));
  if (is_pipeline(work_kind(label))) return fmt::format("{}{}", label.stage, short_name(record, event));
  return short_name(record, event);
}

std::string spoken_name(const RunRecord& record, const RunEvent& event) {
  const EventLabel& label = record.labels[event.label];
  const WorkKind work = work_kind(label);
  if (is_pipeline(work)) return fmt::format("{} of stage {}", short_name(record, event), label.stage);
  if (!label.communication) {
    const std::string_view words = kernel_words(label.kernel);
    return words.empty() ? label.name : std::string(words);
  }
  const std::string_view slot = slot_words(label.slot);
  const std::string what = slot.empty() ? label.name : std::string(slot);
  if (!is_p2p(label.endpoint)) return fmt::format("{} of {}", endpoint_words(label.endpoint), what);
  const bool send = label.endpoint == EndpointKind::kSend;
  return fmt::format("{} of {} {} (stage {}) {} rank {}", endpoint_words(label.endpoint), what,
                     number(event.microbatch), label.stage, send ? "to" : "from", event.peer);
}

ChunkTable::ChunkTable(const RunRecord& record)
    : stages_(static_cast<std::size_t>(std::max(record.ranks, 0))) {
  for (const RunEvent& event : record.events) {
    if (!drawable(record, event)) continue;
    const EventLabel& label = record.labels[event.label];
    if (!is_pipeline(work_kind(label))) continue;
    std::vector<int>& mine = stages_[static_cast<std::size_t>(event.rank)];
    const auto at = std::lower_bound(mine.begin(), mine.end(), label.stage);
    if (at == mine.end() || *at != label.stage) mine.insert(at, label.stage);
  }
  for (const std::vector<int>& mine : stages_) chunks_ = std::max(chunks_, static_cast<int>(mine.size()));
}

int ChunkTable::chunk(Rank rank, int stage) const {
  if (rank < 0 || static_cast<std::size_t>(rank) >= stages_.size()) return 0;
  const std::vector<int>& mine = stages_[static_cast<std::size_t>(rank)];
  const auto at = std::lower_bound(mine.begin(), mine.end(), stage);
  return at != mine.end() && *at == stage ? static_cast<int>(at - mine.begin()) : 0;
}

}  // namespace plumbline
