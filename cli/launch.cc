// `launch`: the command that starts a run on many processes under SLURM, torchrun, Open MPI or Hydra.
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

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
  bool quiet = false;
  std::string log_interval, timeout, join_timeout, compute;  // as given; the run reads them
};

// The run's words: its configuration, and what `plumbline run` takes beside it.
Result<std::vector<std::string>> run_words(const ConfigArguments& arguments, const Options& options) {
  if (options.backend != "gloo" && options.backend != "cuda")
    return fail(
        ErrorCode::kUsage,
        fmt::format("--backend '{}' has no run of one process a rank; gloo and cuda have", options.backend));
  if (options.backend != "cuda" && !options.compute.empty())
    return fail(ErrorCode::kUsage, "--compute is of --backend cuda");
  std::vector<std::string> words{"run"};
  for (const std::string& argument : arguments.arguments()) words.push_back(argument);
  words.insert(words.end(), {"--backend", options.backend});
  if (!options.out.empty()) words.insert(words.end(), {"-o", options.out});
  if (options.quiet) words.emplace_back("-q");
  for (const auto& [flag, value] :
       {std::pair("--log-interval", &options.log_interval), std::pair("--timeout", &options.timeout),
        std::pair("--join-timeout", &options.join_timeout), std::pair("--compute", &options.compute)})
    if (!value->empty()) words.insert(words.end(), {flag, *value});
  return words;
}

int launch(const ConfigArguments& arguments, const Options& options) {
  const Result<ValidConfig> valid = arguments.load(Purpose::kRun);
  if (!valid) return report(valid.error());
  const int ranks = valid->config.grid.world();
  const Result<std::vector<std::string>> words = run_words(arguments, options);
  if (!words) return report(words.error());
  const LaunchShape shape{ranks, options.per_node > 0 ? options.per_node : ranks, ::geteuid() == 0,
                          options.backend == "cuda"};
  const Result<std::string> command = launch_command(options.launcher, shape, *words);
  if (!command) return report(command.error());
  print_line(*command);
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--dry-run", options->launcher,
                 "print the command for slurm, torchrun, mpirun (Open MPI) or mpiexec (Hydra: "
                 "MPICH, Intel MPI); nothing is started")
      ->required();
  app.add_option("--per-node", options->per_node, "ranks on one machine; all if not given");
  app.add_option("--backend", options->backend, "backend of the run: gloo or cuda; gloo if not given");
  app.add_option("-o,--out", options->out, "the record's file");
  app.add_flag("-q,--quiet", options->quiet, "the run's: no table");
  app.add_option("--log-interval", options->log_interval, "the run's: iterations between lines of the table");
  app.add_option("--timeout", options->timeout, "the run's: seconds without progress; 0: no limit");
  app.add_option("--join-timeout", options->join_timeout, "the run's: seconds to wait for all ranks");
  app.add_option("--compute", options->compute, "the run's, of cuda: device, host or auto");
  const auto config = add_config_arguments(app);
  return [=]() -> int { return launch(*config, *options); };
}

const RegisterCommand kCommand(
    {.name = "launch",
     .summary = "print the command that starts a run on many processes",
     .usage = "--dry-run slurm|torchrun|mpirun|mpiexec [--per-node N] [CONFIG] [flags]",
     .examples = {{"plumbline launch --dry-run slurm --per-node 8 cfg.toml", "srun, 8 ranks a node"},
                  {"plumbline launch --dry-run torchrun --backend cuda cfg.toml", "a GPU a rank"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
