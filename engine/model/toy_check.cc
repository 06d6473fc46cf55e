#include "engine/model/toy_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/model/precision.h"

namespace plumbline {
namespace {

constexpr int kStride =
    31;  // how far weights move a step: entry e of a step has the weight of e + 31 of the one before

float expected_at(const ToyStep& step, std::int64_t at, int entry) {
  const float weight = static_cast<float>(toy_weight(step.dtype, at, entry));
  return round_to(step.dtype, weight * step.factor) * step.inverse;
}

struct Reading {
  ToyFault fault;
  int other = -1;
};

Reading read_value(const ToyStep& step, int entry, float value) {
  const float right = toy_expected(step, entry);
  if (value == 0.0f) return {ToyFault::kLost};
  if (value == 2.0f * right) return {ToyFault::kDoubled};
  for (int other = 0; other < step.entries(); ++other) {
    if (other != entry && value == toy_expected(step, other)) return {ToyFault::kSwapped, other};
  }
  if (step.step > 0) {
    const float before = expected_at(step, step.step - 1, entry);
    if (value == before || value == before + right) return {ToyFault::kStale};
  }
  for (int other = 0; other < step.entries(); ++other) {
    if (other != entry && value == right + toy_expected(step, other)) return {ToyFault::kMixed, other};
  }
  return {ToyFault::kScaled};
}

std::string describe(const ToyFinding& finding, const ToyStep& step, float value, float right) {
  std::string text =
      fmt::format("rank {}, stage {}, microbatch {}", finding.rank, finding.stage, finding.microbatch);
  if (step.replicas > 1) text += fmt::format(" of replica {}", finding.replica);
  text += fmt::format(": {} contribution", toy_fault_name(finding.fault));
  if (finding.other >= 0) {
    text += fmt::format(" (that of microbatch {}", finding.other / step.replicas);
    if (step.replicas > 1) text += fmt::format(" of replica {}", finding.other % step.replicas);
    text += ")";
  }
  text += fmt::format(", gradient {} instead of {}", value, right);
  if (finding.fault == ToyFault::kScaled) text += fmt::format(", factor {}", value / right);
  return text;
}

}  // namespace

int toy_max_entries(DType dtype) { return dtype == DType::kBF16 ? 126 : 1021; }

int toy_weight(DType dtype, std::int64_t step, int entry) {
  const std::int64_t place = (entry + kStride * step) % toy_max_entries(dtype);
  return static_cast<int>(3 + 2 * place);
}

float toy_expected(const ToyStep& step, int entry) { return expected_at(step, step.step, entry); }

std::string_view toy_fault_name(ToyFault fault) {
  switch (fault) {
    case ToyFault::kLost:
      return "lost";
    case ToyFault::kDoubled:
      return "doubled";
    case ToyFault::kSwapped:
      return "swapped";
    case ToyFault::kMixed:
      return "mixed";
    case ToyFault::kStale:
      return "stale";
    case ToyFault::kScaled:
      return "wrongly scaled";
  }
  return "?";
}

std::vector<ToyFinding> check_toy_gradient(const ToyStep& step, int rank, int stage,
                                           std::span<const float> gradient, int first) {
  std::vector<ToyFinding> findings;
  const int end = std::min(step.entries(), first + static_cast<int>(gradient.size()));
  for (int entry = first; entry < end; ++entry) {
    const float value = gradient[static_cast<std::size_t>(entry - first)];
    const float right = toy_expected(step, entry);
    if (value == right) continue;
    const Reading reading = read_value(step, entry, value);
    ToyFinding finding;
    finding.fault = reading.fault;
    finding.rank = rank;
    finding.stage = stage;
    finding.replica = entry % step.replicas;
    finding.microbatch = entry / step.replicas;
    finding.other = reading.other;
    finding.text = describe(finding, step, value, right);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace plumbline
