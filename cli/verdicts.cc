#include "cli/verdicts.h"

#include <thread>
#include <utility>

#include "engine/base/text.h"
#include "engine/program/link.h"
#include "sim/examine.h"
#include "sim/scenario/examine.h"
#include "sim/verify/check.h"

namespace plumbline::cli {
namespace {

std::vector<NcclModel> check_models() { return {certification_model(), default_model()}; }

Result<Verdict> verdict_of(const Input& input, const Program* program, const std::vector<NcclModel>& modes,
                           Bytes memory_limit) {
  if (!input.structure.empty()) {
    Verdict verdict;
    verdict.program = input.name;
    verdict.findings = input.structure;
    return verdict;
  }
  const Result<LinkedProgram> linked = link_program(*program);
  if (!linked) return tl::unexpected(linked.error());
  CheckOptions options;
  options.memory_limit = memory_limit;
  options.time = TimeModel(input.config);
  Result<Verdict> verdict = is_plain(*program) ? check_program(*linked, options) : Verdict{};
  if (!verdict || (modes.empty() && is_plain(*program))) return verdict;
  verdict->program = program->name;
  verdict->operations = program_size(*program).operations();
  verdict->modes.clear();
  for (const NcclModel& mode : modes.empty() ? check_models() : modes) {
    Result<ModeVerdict> one = examine_mode(*linked, mode, options.time);
    if (!one) return tl::unexpected(one.error());
    verdict->modes.push_back(std::move(*one));
  }
  return verdict;
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

Result<std::vector<Judged>> judge(const Input& input, const std::vector<NcclModel>& modes,
                                  Bytes memory_limit) {
  std::vector<Judged> judged;
  if (input.kind != InputKind::kScenario) {
    const bool file = input.kind != InputKind::kConfig && input.name != "-";
    std::vector<const Program*> programs{input.program ? &*input.program : nullptr};
    for (const Program& other : input.others) programs.push_back(&other);
    for (const Program* program : programs) {
      Result<Verdict> verdict = verdict_of(input, program, modes, memory_limit);
      if (!verdict) return tl::unexpected(verdict.error());
      judged.push_back({std::move(*verdict), {file ? input.name : std::string(), 0}, nullptr});
    }
    return judged;
  }
  const std::vector<NcclModel> wanted = modes.empty() ? check_models() : modes;
  std::vector<Result<Verdict>> verdicts = examine_scenarios(
      input.scenarios, wanted, TimeModel(input.config), std::max(1U, std::thread::hardware_concurrency()));
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Scenario& scenario = input.scenarios[i];
    if (!verdicts[i]) {
      Error error = verdicts[i].error();
      if (error.where.file.empty()) error.where = Where{input.name, scenario.line, 0};
      return tl::unexpected(std::move(error));
    }
    const SubjectPlace place{input.name == "-" ? std::string() : input.name, scenario.line};
    judged.push_back({std::move(*verdicts[i]), place, &scenario});
  }
  return judged;
}

}  // namespace plumbline::cli
