// `check`: proves that a configuration, a schedule or a Program cannot hang, drop, swap or double anything.
#include "sim/verify/check.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/input.h"
#include "cli/verdict_output.h"
#include "engine/base/units.h"
#include "engine/program/link.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool json = false;
  std::string memory_limit;
};

Result<Verdict> verdict_of(const Input& input, Bytes memory_limit) {
  if (!input.structure.empty()) {
    Verdict verdict;
    verdict.program = input.name;
    verdict.findings = input.structure;
    return verdict;
  }
  const Result<LinkedProgram> linked = link_program(*input.program);
  if (!linked) return tl::unexpected(linked.error());
  CheckOptions options;
  options.memory_limit = memory_limit;
  options.time = TimeModel(input.config);
  return check_program(*linked, options);
}

int check(const Options& options, const InputOptions& input_options, const ConfigArguments& arguments) {
  const Result<Input> input = load_input(arguments, input_options, Purpose::kCheck);
  if (!input) return report(input.error());
  Bytes limit = input->config.memory.limit;
  if (!options.memory_limit.empty()) {
    const Result<Bytes> given = parse_bytes(options.memory_limit);
    if (!given) return report(given.error());
    limit = *given;
  }
  const Result<Verdict> verdict = verdict_of(*input, limit);
  if (!verdict) return report(verdict.error());
  print_verdict(*verdict, options.json);
  return verdict->exit_code();
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "the verdict as one JSON document");
  app.add_option("--memory-limit", options->memory_limit, "largest peak a rank may have, as 80GiB");
  const auto input = add_input_options(app);
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return check(*options, *input, *arguments); };
}

const RegisterCommand kCommand(
    {.name = "check",
     .summary = "prove that a schedule cannot hang, drop, swap or double anything",
     .usage = "[CONFIG | SCHEDULE.csv | PROGRAM.txt | -] [flags]",
     .examples = {{"plumbline check --pp 8 --microbatches 64", "1F1B on 8 ranks, the whole training step"},
                  {"plumbline check schedule.csv --comm-map pair", "rows of actions, as torch dumps them"},
                  {"plumbline check hang.csv --fragment", "part of a step"},
                  {"plumbline lower run.toml | plumbline check -", "a Program text"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
