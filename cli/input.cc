#include "cli/input.h"

#include <algorithm>
#include <iostream>
#include <iterator>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/output.h"
#include "cli/common/rows_shape.h"
#include "engine/base/text.h"
#include "engine/config/flags.h"
#include "engine/program/lower.h"
#include "engine/program/run_plan.h"
#include "engine/program/text.h"
#include "engine/schedule/csv.h"
#include "sim/scenario/examine.h"

namespace plumbline::cli {
namespace {

// A CSV of actions begins with idle cells, quotes or an action: digits, then a letter.
bool looks_like_actions(std::string_view text) {
  std::size_t i = text.find_first_not_of(" \t\r\n,\"(");
  if (i == std::string_view::npos) return false;
  const std::size_t digits = i;
  while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
  return i > digits && i < text.size() && text[i] >= 'A' && text[i] <= 'Z';
}

Finding schedule_finding(FindingKind kind, const ScheduleFinding& fault, const Schedule& schedule) {
  Finding finding;
  finding.kind = kind;
  finding.why = fault.rule + ": " + fault.why;
  OperationRef where;
  where.rank = fault.rank;
  const auto position = static_cast<std::size_t>(std::max(fault.position, 0));
  const bool known =
      fault.rank >= 0 && fault.rank < schedule.ranks && position < schedule.row(fault.rank).size();
  where.text = known ? print_action(schedule.row(fault.rank)[position])
                     : fmt::format("the row of rank {}", fault.rank);
  if (known) where.microbatch = schedule.row(fault.rank)[position].microbatch;
  finding.operations.push_back(std::move(where));
  return finding;
}

// A schedule that somebody wrote need not have as many stages on each rank.
ModelSizes sizes_for(const RunConfig& config, const Schedule& schedule) {
  ModelSizes sizes = default_sizes(config);
  if (sizes.grads.size() == static_cast<std::size_t>(schedule.stages)) return sizes;
  for (std::vector<Bytes>* list : {&sizes.stash, &sizes.grads}) {
    list->resize(static_cast<std::size_t>(schedule.stages), list->empty() ? 0 : list->back());
  }
  sizes.tensors.clear();  // one tensor a stage will do
  return sizes;
}

HoldingBounds bounds_of(const InputOptions& options, const RunConfig& config) {
  HoldingBounds bounds = options.bounds;
  bounds.until_weight_grad = config.schedule.activation_cap;
  return bounds;
}

// The cap that a generator was given is a promise of it, and of rows the wish of whoever asks. `which` begins what a
// finding says.
void hold_to_bounds(const Schedule& schedule, const InputOptions& options, Purpose purpose, Input& input,
                    const std::string& which = {}) {
  if (purpose != Purpose::kCheck || !input.structure.empty()) return;
  for (const ScheduleFinding& fault : check_bounds(schedule, bounds_of(options, input.config))) {
    input.holdings.push_back(schedule_finding(FindingKind::kMemoryLimit, fault, schedule));
    input.holdings.back().why = which + input.holdings.back().why;
  }
}

// The schedules of all steps of a run: a ramp-up has several.
Status examine_steps(const InputOptions& options, Purpose purpose, Input& input) {
  const Result<std::vector<RunConfig>> configs = step_configs(input.config);
  if (!configs) return tl::unexpected(configs.error());
  for (const RunConfig& config : *configs) {
    const Result<Schedule> schedule = schedule_of(config);
    if (!schedule) return tl::unexpected(schedule.error());
    const std::string which = configs->size() > 1
                                  ? fmt::format("in steps of {} microbatches: ", config.schedule.microbatches)
                                  : std::string();
    for (const ScheduleFinding& fault : validate_schedule(*schedule)) {
      input.structure.push_back(schedule_finding(FindingKind::kStructure, fault, *schedule));
      input.structure.back().why = which + input.structure.back().why;
    }
    hold_to_bounds(*schedule, options, purpose, input, which);
  }
  return {};
}

Status refuse_bounds(const InputOptions& options, const Input& input) {
  const HoldingBounds bounds = bounds_of(options, input.config);
  if (bounds.until_weight_grad == 0 && bounds.until_input_grad == 0 && bounds.open_weight_grads == 0)
    return {};
  return fail(
      ErrorCode::kUsage,
      fmt::format("caps count the actions of a schedule, and {} holds {}; give a configuration or rows of "
                  "actions, or --memory-limit, which counts bytes",
                  input.name, input.kind == InputKind::kProgram ? "a Program" : "scenarios"));
}

Status lower_into(const Schedule& schedule, const InputOptions& options, bool pipeline_only, Input& input) {
  for (const ScheduleFinding& fault : validate_schedule(schedule, options.fragment)) {
    input.structure.push_back(schedule_finding(FindingKind::kStructure, fault, schedule));
  }
  if (!input.structure.empty()) return {};
  LowerOptions lowering;
  lowering.fragment = options.fragment;
  lowering.tail = pipeline_only ? StepTail::kSchedule : StepTail::kTrain;
  Result<Program> program = lower(input.config, schedule, sizes_for(input.config, schedule), lowering);
  if (!program) return tl::unexpected(program.error());
  input.program = std::move(*program);
  return {};
}

// All Programs of a run.
Status plan_into(Input& input) {
  RunPlanOptions wanted;
  wanted.evaluation = input.config.optimizer.overlap_param_gather;
  Result<RunPlan> plan = plan_run(input.config, default_sizes(input.config), wanted);
  if (!plan) return tl::unexpected(plan.error());
  for (const Program* program : plan->programs()) {
    if (program != &plan->main()) input.others.push_back(*program);
  }
  input.program = std::move(plan->train[plan->main_program]);
  return {};
}

Status read_csv(const std::string& text, std::vector<std::string> rest, const InputOptions& options,
                Purpose purpose, Input& input) {
  const Result<Schedule> schedule = parse_schedule_csv(text, input.name, {options.fragment});
  if (!schedule) return tl::unexpected(schedule.error());
  Result<RunConfig> config = config_for_rows(*schedule, input.name, std::move(rest), purpose);
  if (!config) return tl::unexpected(config.error());
  input.config = std::move(*config);
  PL_TRY(lower_into(*schedule, options, true, input));
  hold_to_bounds(*schedule, options, purpose, input);
  return {};
}

Status read_program(const std::string& text, const std::vector<std::string>& rest,
                    const InputOptions& options, Purpose purpose, Input& input) {
  Result<ValidConfig> valid = load_arguments(rest, purpose);
  if (!valid) return tl::unexpected(valid.error());
  input.config = std::move(valid->config);
  Result<Program> program = parse_program(text, input.name);
  if (!program) return tl::unexpected(program.error());
  program->fragment = program->fragment || options.fragment;
  input.program = std::move(*program);
  return {};
}

Status read_scenarios(const std::string& text, const std::vector<std::string>& rest,
                      const InputOptions& options, Purpose purpose, Input& input) {
  Result<ValidConfig> valid = load_arguments(rest, purpose);
  if (!valid) return tl::unexpected(valid.error());
  input.config = std::move(valid->config);
  Result<std::vector<Scenario>> all = parse_scenarios(text, input.name);
  if (!all) return tl::unexpected(all.error());
  if (!options.id.empty()) {
    std::vector<std::string> ids;
    for (Scenario& scenario : *all) {
      ids.push_back(scenario.id);
      if (scenario.id == options.id) input.scenarios.push_back(std::move(scenario));
    }
    if (input.scenarios.empty()) {
      const std::string near = nearest(options.id, ids);
      return fail(ErrorCode::kUsage,
                  fmt::format("{} has no scenario '{}'{}", input.name, options.id,
                              near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
    }
  } else {
    input.scenarios = std::move(*all);
  }
  if (input.scenarios.size() > 1) {
    if (purpose == Purpose::kCheck) return {};
    return fail(ErrorCode::kUsage, fmt::format("{} holds {} scenarios; choose one with --id", input.name,
                                               input.scenarios.size()));
  }
  Result<Program> program = scenario_program(input.scenarios.front());
  if (!program) return tl::unexpected(program.error());
  input.program = std::move(*program);
  return {};
}

Status read_config(const std::vector<std::string>& arguments, const InputOptions& options, Purpose purpose,
                   const std::optional<std::string>& text, Input& input) {
  Result<ValidConfig> valid = load_arguments(arguments, purpose, text);
  if (!valid) return tl::unexpected(valid.error());
  input.config = std::move(valid->config);
  const Result<Schedule> schedule = schedule_of(input.config, options.fragment);
  if (!schedule) return tl::unexpected(schedule.error());
  const bool listed = input.config.schedule.kind == ScheduleKind::kCsv;
  if (listed || options.pipeline_only || options.fragment || schedule->forward_only) {
    PL_TRY(lower_into(*schedule, options, options.pipeline_only, input));
    hold_to_bounds(*schedule, options, purpose, input);
    return {};
  }
  PL_TRY(examine_steps(options, purpose, input));
  return input.structure.empty() ? plan_into(input) : Status();
}

}  // namespace

std::shared_ptr<InputOptions> add_input_options(CLI::App& app) {
  auto options = std::make_shared<InputOptions>();
  app.add_flag("--fragment", options->fragment,
               "part of a step: computations that are not listed count as done");
  app.add_option("--id", options->id, "of a file of scenarios, this one");
  app.add_flag("--pipeline-only", options->pipeline_only, "leave out gradient reduction and optimizer");
  return options;
}

InputKind kind_of(const std::string& name, std::string_view text) {
  if (looks_like_program(text)) return InputKind::kProgram;
  if (scenario_form(name, text) != ScenarioForm::kNone) return InputKind::kScenario;
  const bool csv = name.size() > 4 && name.compare(name.size() - 4, 4, ".csv") == 0;
  return csv || looks_like_actions(text) ? InputKind::kCsv : InputKind::kConfig;
}

Result<RunConfig> config_for_rows(const Schedule& schedule, const std::string& name,
                                  std::vector<std::string> flags, Purpose purpose) {
  flags.insert(flags.end(), {"--schedule", "csv", "--schedule-csv", name});
  Result<LoadedConfig> loaded = load_arguments(flags);
  if (!loaded) return tl::unexpected(loaded.error());
  PL_TRY(shape_from_rows(schedule, name, *loaded));
  Result<ValidConfig> valid = validated(std::move(*loaded), purpose);
  if (!valid) return tl::unexpected(valid.error());
  return std::move(valid->config);
}

Result<std::string> read_input(const std::string& name) {
  if (name != "-") return read_file(name);
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (std::cin.bad()) return fail(ErrorCode::kIo, "cannot read standard input");
  return text;
}

Result<Input> load_input(const std::vector<std::string>& all, const InputOptions& options, Purpose purpose) {
  const Result<ParsedFlags> flags = parse_flags(all);
  if (!flags) return tl::unexpected(flags.error());
  Input input;
  if (flags->words.size() != 1) {
    PL_TRY(read_config(all, options, purpose, std::nullopt, input));
    return input;
  }
  input.name = flags->words.front();
  const Result<std::string> text = read_input(input.name);
  if (!text) return tl::unexpected(text.error());
  input.kind = kind_of(input.name, *text);
  std::vector<std::string> rest = all;
  rest.erase(std::find(rest.rbegin(), rest.rend(), input.name).base() - 1);
  switch (input.kind) {
    case InputKind::kProgram:
      PL_TRY(read_program(*text, rest, options, purpose, input));
      break;
    case InputKind::kCsv:
      PL_TRY(read_csv(*text, rest, options, purpose, input));
      break;
    case InputKind::kScenario:
      PL_TRY(read_scenarios(*text, rest, options, purpose, input));
      break;
    case InputKind::kConfig:
      PL_TRY(read_config(all, options, purpose, *text, input));
  }
  const bool schedule = input.kind == InputKind::kConfig || input.kind == InputKind::kCsv;
  if (purpose == Purpose::kCheck && !schedule) PL_TRY(refuse_bounds(options, input));
  return input;
}

}  // namespace plumbline::cli
