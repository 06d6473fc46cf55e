// `launch`: the command that starts a run on many processes under SLURM, torchrun or mpirun.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/options_binding.h"
#include "cli/common/output.h"
#include "engine/runtime/launch_env.h"

namespace plumbline::cli {
namespace {

struct Options {
  std::string launcher;
  std::string backend = "gloo";
  std::string out;
  int per_node = 0;
};

int launch(const ConfigArguments& arguments, const Options& options) {
  const Result<ValidConfig> valid = arguments.load(Purpose::kRun);
  if (!valid) return report(valid.error());
  const int ranks = valid->config.grid.world();
  std::vector<std::string> words{"run"};
  for (const std::string& argument : arguments.arguments()) words.push_back(argument);
  words.insert(words.end(), {"--backend", options.backend});
  if (!options.out.empty()) words.insert(words.end(), {"-o", options.out});
  const Result<std::string> command =
      launch_command(options.launcher, ranks, options.per_node > 0 ? options.per_node : ranks, words);
  if (!command) return report(command.error());
  print_line(*command);
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--dry-run", options->launcher,
                 "print the command for slurm, torchrun or mpirun; nothing is started")
      ->required();
  app.add_option("--per-node", options->per_node, "ranks on one machine; all if not given");
  app.add_option("--backend", options->backend, "backend of the run; gloo if not given");
  app.add_option("-o,--out", options->out, "the record's file");
  const auto config = add_config_arguments(app);
  return [=]() -> int { return launch(*config, *options); };
}

const RegisterCommand kCommand({.name = "launch",
                                .summary = "print the command that starts a run on many processes",
                                .usage = "--dry-run slurm|torchrun|mpirun [--per-node N] [CONFIG] [flags]",
                                .examples = {{"plumbline launch --dry-run slurm --per-node 8 cfg.toml",
                                              "srun, 8 ranks a node"}},
                                .build = build});

}  // namespace
}  // namespace plumbline::cli
