#include "sim/advice.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "sim/examine.h"
#include "sim/fix.h"
#include "sim/portability.h"
#include "sim/sensitivity.h"

namespace plumbline {
namespace {

// The deadlock whose circle has most to go by: the simulator's, of the default mode.
const Finding* circle_of(const Verdict& verdict) {
  const Finding* best = nullptr;
  for (const ModeVerdict& mode : verdict.modes) {
    for (const Finding& finding : mode.findings) {
      if (finding.kind != FindingKind::kDeadlock || finding.cycle.empty()) continue;
      if (best == nullptr || finding.cycle.size() > best->cycle.size()) best = &finding;
    }
  }
  return best;
}

void add_hint(const LinkedProgram& linked, const TimeModel& time, Verdict& verdict) {
  const Finding* circle = circle_of(verdict);
  if (circle == nullptr) return;
  std::string hint;
  const std::vector<NcclModel> both{certification_model(), default_model()};
  if (const std::optional<Fix> fix = find_fix(*linked.program, *circle, both, time)) {
    hint = fix->words + ": it then completes in the certification and in the default mode (simulated)";
  } else if (const std::optional<Fix> some = find_fix(*linked.program, *circle, {default_model()}, time)) {
    hint = some->words + ": it then completes in the default mode (simulated), but is not certified";
  }
  if (hint.empty()) return;
  for (ModeVerdict& mode : verdict.modes) {
    for (Finding& finding : mode.findings) {
      if (finding.kind == FindingKind::kDeadlock) finding.hint = hint;
    }
  }
}

}  // namespace

Status add_advice(const LinkedProgram& linked, const TimeModel& time, const AdviceOptions& options,
                  Verdict& verdict) {
  if (options.always || verdict.operations <= options.most_portability) {
    verdict.portability = portability(linked);
    verdict.portability_checked = true;
  }
  const bool due = !verdict.holds() && verdict.operations <= options.most_operations;
  if (!due && !options.always) return {};
  Result<std::vector<SensitivityRow>> rows = sensitivity(linked, time);
  if (!rows) return tl::unexpected(rows.error());
  verdict.sensitivity = std::move(*rows);
  add_hint(linked, time, verdict);
  return {};
}

}  // namespace plumbline
