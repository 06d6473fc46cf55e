// `show`: a step's timeline in the terminal, of a record or of what a configuration would do.
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/input.h"
#include "cli/record_file.h"
#include "cli/verdict_output.h"
#include "engine/config/flags.h"
#include "reports/terminal.h"
#include "sim/run.h"

namespace plumbline::cli {
namespace {

struct Options {
  int step = -1;
};

// The record that is the single word of the command line, or one simulated step of what the words stand for.
Result<RunRecord> subject(const InputOptions& input_options, const ConfigArguments& arguments) {
  const Result<ParsedFlags> flags = parse_flags(arguments.arguments());
  if (!flags) return tl::unexpected(flags.error());
  if (flags->words.size() == 1 && is_record_file(flags->words.front())) return read_record(flags->words);
  const Result<Input> input = load_input(arguments, input_options, Purpose::kSim);
  if (!input) return tl::unexpected(input.error());
  if (!input->program) return fail(ErrorCode::kConfig, input->structure.front().why);
  Result<SimOutcome> outcome = simulate_run(input->config, *input->program, 1);
  if (!outcome) return tl::unexpected(outcome.error());
  if (!outcome->verdict.holds()) {
    warn("this run has findings; the timeline is what happened up to there — see 'plumbline check'");
  }
  return std::move(outcome->record);
}

int show(const Options& options, const InputOptions& input_options, const ConfigArguments& arguments) {
  const Result<RunRecord> record = subject(input_options, arguments);
  if (!record) return report(record.error());
  TerminalOptions terminal;
  terminal.width = output_width();
  terminal.colour = stdout_colour();
  terminal.step = options.step;
  const Result<std::string> text = terminal_timeline(*record, terminal);
  if (!text) return report(text.error());
  print(*text);
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--step", options->step, "which step of a record (a typical one)");
  const auto input = add_input_options(app);
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return show(*options, *input, *arguments); };
}

const RegisterCommand kCommand({.name = "show",
                                .summary = "draw a step's timeline in the terminal",
                                .usage = "[RUN | CONFIG | SCHEDULE.csv | PROGRAM.txt] [flags]",
                                .examples = {{"plumbline show run.plmb", "a step of a run"},
                                             {"plumbline show --pp 4 -m 8", "what 1F1B would look like"}},
                                .build = build});

}  // namespace
}  // namespace plumbline::cli
