#include "cli/verdicts.h"

#include <utility>

#include "engine/base/text.h"
#include "engine/base/workers.h"
#include "engine/program/graphs.h"
#include "engine/program/link.h"
#include "sim/advice.h"
#include "sim/examine.h"
#include "sim/scenario/examine.h"
#include "sim/verify/check.h"
#include "sim/verify/quotient.h"

namespace plumbline::cli {
namespace {

std::vector<NcclModel> check_models() { return {certification_model(), default_model()}; }

// On one replica where all do the same: the verdict is that of the full walk.
Result<Verdict> proved(const LinkedProgram& linked, const CheckOptions& options) {
  if (linked.program->grid.dp() > 1) {
    Result<Verdict> verdict = check_quotient(*linked.program, options);
    if (verdict || verdict.error().code != ErrorCode::kUnsupported) return verdict;
  }
  return check_program(linked, options);
}

// What needs no mode: slots, gradients, memory. Of graphs that a configuration asked for it is proved on their calls.
Result<Verdict> proved_of_graphs(const Input& input, const Program& program, const CheckOptions& options) {
  if (!input.config.schedule.cuda_graphs || !program.extras.graphs) return Verdict{};
  const Program calls = without_graphs(program);
  const Result<LinkedProgram> linked = link_program(calls);
  if (!linked) return tl::unexpected(linked.error());
  return is_provable(*linked) ? proved(*linked, options) : Verdict{};
}

Result<Verdict> verdict_of(const Input& input, const Program* program, const JudgeOptions& judging) {
  if (!input.structure.empty()) {
    Verdict verdict;
    verdict.program = input.name;
    verdict.findings = input.structure;
    return verdict;
  }
  const Result<LinkedProgram> linked = link_program(*program);
  if (!linked) return tl::unexpected(linked.error());
  CheckOptions options;
  options.memory_limit = judging.memory_limit;
  options.time = TimeModel(input.config);
  const bool plain = is_provable(*linked);
  Result<Verdict> verdict = plain ? proved(*linked, options) : proved_of_graphs(input, *program, options);
  if (!verdict) return verdict;
  if (!judging.modes.empty() || !plain) {
    verdict->program = program->name;
    verdict->operations = program_size(*program).operations();
    verdict->modes.clear();
    for (const NcclModel& mode : judging.modes.empty() ? check_models() : judging.modes) {
      Result<ModeVerdict> one = examine_mode(*linked, mode, options.time);
      if (!one) return tl::unexpected(one.error());
      verdict->modes.push_back(std::move(*one));
    }
  }
  AdviceOptions advice;
  advice.always = judging.sensitivity;
  PL_TRY(add_advice(*linked, options.time, advice, *verdict));
  return verdict;
}

// A scenario on its own gets advice; of a file of them, each its verdict.
Status advise(const Scenario& scenario, const TimeModel& time, bool sensitivity, Verdict& verdict) {
  const Result<Program> program = scenario_program(scenario);
  if (!program) return tl::unexpected(program.error());
  const Result<LinkedProgram> linked = link_program(*program);
  if (!linked) return tl::unexpected(linked.error());
  AdviceOptions advice;
  advice.always = sensitivity;
  return add_advice(*linked, time, advice, verdict);
}

}  // namespace

Result<std::vector<NcclModel>> modes_from(const std::string& text) {
  if (text == "all") return reference_models();
  std::vector<NcclModel> modes;
  if (text.empty()) return modes;
  for (const std::string_view name : split(text, ',')) {
    const Result<NcclModel> model = model_named(trim(name));
    if (!model) return tl::unexpected(model.error());
    modes.push_back(*model);
  }
  return modes;
}

Result<std::vector<Judged>> judge(const Input& input, const JudgeOptions& options) {
  std::vector<Judged> judged;
  if (input.kind != InputKind::kScenario) {
    const bool file = input.kind != InputKind::kConfig && input.name != "-";
    // A run may execute several Programs (batch schedule, evaluation, param-sync): each gets its verdict.
    std::vector<const Program*> programs{input.program ? &*input.program : nullptr};
    for (const Program& other : input.others) programs.push_back(&other);
    for (const Program* program : programs) {
      Result<Verdict> verdict = verdict_of(input, program, options);
      if (!verdict) return tl::unexpected(verdict.error());
      if (judged.empty())  // the schedule's own Program comes first
        verdict->findings.insert(verdict->findings.end(), input.holdings.begin(), input.holdings.end());
      judged.push_back({std::move(*verdict), {file ? input.name : std::string(), 0}, nullptr});
    }
    return judged;
  }
  const std::vector<NcclModel> modes = options.modes.empty() ? check_models() : options.modes;
  const TimeModel time(input.config);
  std::vector<Result<Verdict>> verdicts = examine_scenarios(
      input.scenarios, modes, time, static_cast<unsigned>(usable_cores()), !options.as_reference);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Scenario& scenario = input.scenarios[i];
    Result<Verdict>& verdict = verdicts[i];
    if (verdict && (verdicts.size() == 1 || options.sensitivity)) {
      if (const Status added = advise(scenario, time, options.sensitivity, *verdict); !added)
        verdict = tl::unexpected(added.error());
    }
    if (!verdict) {
      Error error = verdict.error();
      if (error.where.file.empty()) error.where = Where{input.name, scenario.line, 0};
      return tl::unexpected(std::move(error));
    }
    const SubjectPlace place{input.name == "-" ? std::string() : input.name, scenario.line};
    judged.push_back({std::move(*verdict), place, &scenario});
  }
  return judged;
}

}  // namespace plumbline::cli
