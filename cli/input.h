// What check, sim, show and explain take as their subject: a configuration, a schedule's CSV, a Program text,
// scenarios, or "-" for any but the first from standard input. Which one it is, is told by the content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/common/options_binding.h"
#include "engine/program/program.h"
#include "engine/schedule/bounds.h"
#include "engine/schedule/schedule.h"
#include "sim/scenario/scenario.h"
#include "sim/verdict.h"

namespace plumbline::cli {

struct InputOptions {
  bool fragment = false;       // computations that are not listed count as done
  bool pipeline_only = false;  // without gradient reduction and optimizer; always so for a CSV
  std::string id;              // of a file of scenarios: this one
  // On what a rank may hold, beside schedule.activation_cap; a check holds schedules to them.
  HoldingBounds bounds;
};

enum class InputKind : std::uint8_t { kConfig, kCsv, kProgram, kScenario };

struct Input {
  InputKind kind = InputKind::kConfig;
  std::string name;                // the file, "-" or empty
  RunConfig config;                // valid; of a Program it gives times, limits and simulator settings
  std::vector<Finding> structure;  // what is wrong with the schedule itself; then there is no program
  std::vector<Finding> holdings;   // bounds that a sound schedule breaks; only for a check
  std::optional<Program> program;
  // Of a configuration: what else a run of it executes (program/run_plan.h) - steps with another number of
  // microbatches, evaluation and param-sync where gathers are left to them.
  std::vector<Program> others;
  // kScenario: those of the file, or the one chosen by id. `program` is there when it is one.
  std::vector<Scenario> scenarios;
};

// --fragment, --pipeline-only and --id.
std::shared_ptr<InputOptions> add_input_options(CLI::App& app);

// Only a check takes more than one scenario, and it holds only schedules to bounds. `arguments` are flags and at most
// one file.
Result<Input> load_input(const std::vector<std::string>& arguments, const InputOptions& options,
                         Purpose purpose);
inline Result<Input> load_input(const ConfigArguments& arguments, const InputOptions& options,
                                Purpose purpose) {
  return load_input(arguments.arguments(), options, purpose);
}

// What a text is, told by its content and, for a CSV or a scenario, its file's name.
InputKind kind_of(const std::string& name, std::string_view text);

// The valid configuration that goes with rows from a file: flags, and the shape of the rows where no flag says
// otherwise.
Result<RunConfig> config_for_rows(const Schedule& schedule, const std::string& name,
                                  std::vector<std::string> flags, Purpose purpose);

// The text of a file, or of standard input for "-".
Result<std::string> read_input(const std::string& name);

}  // namespace plumbline::cli
