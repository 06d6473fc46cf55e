#include "sim/scenario/examine.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/base/workers.h"
#include "engine/program/link.h"
#include "sim/examine.h"

namespace plumbline {
NcclModel scenario_model(const Scenario& scenario, NcclModel mode) {
  mode.launch_blocking = mode.launch_blocking || scenario.options.launch_blocking;
  if (scenario.options.ranks_per_node > 0) mode.ranks_per_node = scenario.options.ranks_per_node;
  if (scenario.options.max_ops_per_kernel > 0) {
    mode.progress.plan_items = scenario.options.max_ops_per_kernel;
    mode.progress.plan_restart = scenario.options.plan_restarts_rounds;
  }
  return mode;
}

Result<Verdict> examine_scenario(const Scenario& scenario, const std::vector<NcclModel>& modes,
                                 const TimeModel& time, bool explore_schedules) {
  const Result<Program> program = scenario_program(scenario);
  if (!program) return tl::unexpected(program.error());
  const Result<LinkedProgram> linked = link_program(*program);
  if (!linked) return tl::unexpected(linked.error());
  Verdict verdict;
  verdict.program = scenario.id;
  verdict.operations = program_size(*program).operations();
  for (const NcclModel& mode : modes) {
    Result<ModeVerdict> one = examine_mode(*linked, scenario_model(scenario, mode), time, explore_schedules);
    if (!one) return tl::unexpected(one.error());
    one->mode = mode.name();
    verdict.modes.push_back(std::move(*one));
  }
  return verdict;
}

std::vector<Result<Verdict>> examine_scenarios(const std::vector<Scenario>& scenarios,
                                               const std::vector<NcclModel>& modes, const TimeModel& time,
                                               unsigned workers, bool explore_schedules) {
  std::vector<Result<Verdict>> verdicts(scenarios.size());
  // A thread is worth its start for some scenarios only.
  share_out(scenarios.size(), std::min<std::size_t>(workers, scenarios.size() / 16 + 1), [&](std::size_t i) {
    verdicts[i] = examine_scenario(scenarios[i], modes, time, explore_schedules);
  });
  return verdicts;
}

std::string reference_value(const ModeVerdict& verdict) {
  std::set<std::string> words;
  for (const Finding& finding : verdict.findings) {
    switch (finding.kind) {
      case FindingKind::kSizeMismatch:
        words.insert("BYTES");
        break;
      case FindingKind::kLabelMismatch:
        words.insert("WRONGDATA");
        break;
      case FindingKind::kCollectiveMismatch:
        words.insert("COLLMISMATCH");
        break;
      case FindingKind::kNcclError:
        words.insert("ERROR(" + finding.code + ")");
        break;
      case FindingKind::kCrossWired:
        words.insert("CROSSWIRED");
        if (finding.code == "ncclInternalError") words.insert("INTERNAL_ERROR(truncated)");
        break;
      default:
        break;
    }
  }
  std::string value = verdict.completes ? "" : "DEADLOCK";
  for (const std::string& word : words) value += (value.empty() ? "" : "+") + word;
  return value.empty() ? "OK" : value;
}

std::vector<std::string> differences(const Scenario& scenario, const Verdict& verdict) {
  std::vector<std::string> out;
  for (const ModeVerdict& mode : verdict.modes) {
    const auto expected = scenario.expected.find(mode.mode);
    if (expected == scenario.expected.end()) continue;
    const std::string found = reference_value(mode);
    std::vector<std::string> a, b;  // the order of the words does not matter
    for (const std::string_view word : split(expected->second, '+')) a.emplace_back(word);
    for (const std::string_view word : split(found, '+')) b.emplace_back(word);
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    if (a != b)
      out.push_back(fmt::format("{}: {} is expected, {} was found", mode.mode, expected->second, found));
  }
  return out;
}

}  // namespace plumbline
