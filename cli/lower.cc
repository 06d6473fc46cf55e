// `lower`: prints what a configuration is lowered to: the Program text, or the schedule's rows as CSV.
#include "engine/program/lower.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/options_binding.h"
#include "cli/common/output.h"
#include "engine/program/text.h"
#include "engine/schedule/csv.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool csv = false;
  bool pipeline_only = false;
};

int show(const Options& options, const ConfigArguments& arguments) {
  const Result<ValidConfig> valid = arguments.load(Purpose::kCheck);
  if (!valid) return report(valid.error());
  const RunConfig& config = valid->config;
  if (options.csv) {
    const auto schedule = schedule_of(config);
    if (!schedule) return report(schedule.error());
    print(print_schedule_csv(*schedule));
    return kExitHolds;
  }
  LowerOptions lowering;
  lowering.tail = options.pipeline_only ? StepTail::kSchedule : StepTail::kTrain;
  const auto program = program_of(config, default_sizes(config), lowering);
  if (!program) return report(program.error());
  print(print_program(*program));
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--csv", options->csv, "the schedule's computations, one row a rank, as torch reads them");
  app.add_flag("--pipeline-only", options->pipeline_only, "leave out gradient reduction and optimizer");
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return show(*options, *arguments); };
}

const RegisterCommand kCommand(
    {.name = "lower",
     .summary = "print the Program (or the schedule as CSV) that a configuration stands for",
     .usage = "[CONFIG] [--csv] [--pipeline-only] [flags]",
     .examples = {{"plumbline lower --pp 4 -m 8 > program.txt", "the Program text"},
                  {"plumbline lower --pp 4 --vp 2 --schedule interleaved -m 8 --csv", "rows of actions"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
