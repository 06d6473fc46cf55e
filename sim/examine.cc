#include "sim/examine.h"

#include <algorithm>
#include <utility>

#include "sim/explore.h"
#include "sim/simulator.h"

namespace plumbline {
namespace {

bool decides(const Program& program) {
  return std::any_of(program.items.begin(), program.items.end(),
                     [](Item item) { return item_op(item) == ItemOp::kDecide; });
}

bool same(const Finding& a, const Finding& b) { return a.kind == b.kind && a.why == b.why; }

Result<ModeVerdict> examine_arm(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time,
                                double read_value) {
  SimOptions options;
  options.model = model;
  options.time = time;
  options.record_events = false;
  options.record_memory = false;
  options.read_value = read_value;
  RunRecord record;
  Result<SimStep> step = Simulator(linked, std::move(options)).run_step(0, record);
  if (!step) return tl::unexpected(step.error());
  ModeVerdict verdict;
  verdict.mode = model.name();
  verdict.completes = step->completed;
  verdict.makespan = step->completed ? step->end - step->begin : 0;
  for (Finding& finding : step->findings) {
    if (about_communication(finding.kind)) verdict.findings.push_back(std::move(finding));
  }
  return verdict;
}

}  // namespace

bool about_communication(FindingKind kind) {
  switch (kind) {
    case FindingKind::kDeadlock:
    case FindingKind::kLabelMismatch:
    case FindingKind::kSizeMismatch:
    case FindingKind::kUnmatched:
    case FindingKind::kCollectiveMismatch:
    case FindingKind::kCrossWired:
    case FindingKind::kNcclError:
      return true;
    default:
      return false;
  }
}

Result<ModeVerdict> examine_mode(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time,
                                 bool explore_schedules) {
  const auto arm = [&](double read_value) -> Result<ModeVerdict> {
    if (!explore_schedules || decided_by_one_run(*linked.program, model))
      return examine_arm(linked, model, time, read_value);
    Result<Exploration> explored = explore(linked, model, time, {}, read_value);
    if (!explored) return tl::unexpected(explored.error());
    return std::move(explored->verdict);
  };
  Result<ModeVerdict> verdict = arm(0.0);
  if (!verdict || !decides(*linked.program)) return verdict;
  Result<ModeVerdict> other = arm(1.0);
  if (!other) return other;
  verdict->completes = verdict->completes && other->completes;
  for (Finding& finding : other->findings) {
    const auto is = [&](const Finding& f) { return same(f, finding); };
    if (std::none_of(verdict->findings.begin(), verdict->findings.end(), is))
      verdict->findings.push_back(std::move(finding));
  }
  if (other->evidence == Evidence::kTested) verdict->evidence = Evidence::kTested;
  verdict->schedules = std::max(verdict->schedules, other->schedules);
  verdict->seed = std::max(verdict->seed, other->seed);
  return verdict;
}

}  // namespace plumbline
