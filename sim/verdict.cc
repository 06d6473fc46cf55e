#include "sim/verdict.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "sim/nccl_model.h"

namespace plumbline {

std::string_view finding_kind_name(FindingKind kind) {
  switch (kind) {
    case FindingKind::kDeadlock:
      return "deadlock";
    case FindingKind::kLabelMismatch:
      return "label-mismatch";
    case FindingKind::kSizeMismatch:
      return "size-mismatch";
    case FindingKind::kUnmatched:
      return "unmatched";
    case FindingKind::kCollectiveMismatch:
      return "collective-mismatch";
    case FindingKind::kCrossWired:
      return "cross-wired";
    case FindingKind::kReadUnwritten:
      return "read-unwritten";
    case FindingKind::kReadFreed:
      return "read-freed";
    case FindingKind::kDoubleWrite:
      return "double-write";
    case FindingKind::kFreeInUse:
      return "free-in-use";
    case FindingKind::kLeak:
      return "leak";
    case FindingKind::kDecideUnagreed:
      return "decide-unagreed";
    case FindingKind::kMemoryLimit:
      return "memory-limit";
    case FindingKind::kPayloadMismatch:
      return "payload-mismatch";
    case FindingKind::kStructure:
      return "structure";
    case FindingKind::kNcclError:
      return "nccl-error";
    case FindingKind::kNotPortable:
      return "not-portable";
  }
  PL_ASSERT_MSG(false, "unknown finding kind");
}

std::string verdict_class(const ModeVerdict& verdict) {
  if (!verdict.completes) return "DEADLOCK";
  if (!verdict.findings.empty()) return "FINDING";
  if (verdict.evidence == Evidence::kTested)
    return fmt::format("TESTED({} schedules, seed {})", verdict.schedules, verdict.seed);
  if (verdict.schedules > 1) return fmt::format("PROVED(all {} schedules)", verdict.schedules);
  if (verdict.mode == certification_model().name())
    return "PROVED(every interleaving, buffer size, launch order and connection)";
  return "PROVED(every interleaving)";
}

bool Verdict::holds() const {
  return findings.empty() && std::all_of(modes.begin(), modes.end(), [](const ModeVerdict& mode) {
           return mode.completes && mode.findings.empty();
         });
}

bool Verdict::certified() const {
  const std::string wanted = certification_model().name();
  return findings.empty() && std::any_of(modes.begin(), modes.end(), [&](const ModeVerdict& mode) {
           return mode.mode == wanted && mode.completes && mode.findings.empty();
         });
}

int Verdict::exit_code() const {
  const auto any = [this](FindingKind kind) {
    const auto is = [kind](const Finding& finding) { return finding.kind == kind; };
    return std::any_of(findings.begin(), findings.end(), is) ||
           std::any_of(modes.begin(), modes.end(), [&](const ModeVerdict& mode) {
             return std::any_of(mode.findings.begin(), mode.findings.end(), is);
           });
  };
  const bool stuck =
      std::any_of(modes.begin(), modes.end(), [](const ModeVerdict& mode) { return !mode.completes; });
  if (stuck || any(FindingKind::kDeadlock)) return 3;
  if (any(FindingKind::kMemoryLimit)) return 5;
  return holds() ? 0 : 1;
}

}  // namespace plumbline
