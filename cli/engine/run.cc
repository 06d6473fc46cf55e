// `plumbline-engine run`: trains, prints a table while it does, writes the RunRecord.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/options_binding.h"
#include "cli/common/output.h"
#include "cli/engine/progress_bar.h"
#include "cli/engine/run_session.h"
#include "cli/engine/run_table.h"
#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/base/shell_line.h"
#include "engine/base/version.h"
#include "engine/config/names.h"
#include "engine/model/arithmetic.h"
#include "engine/train/trainer.h"

namespace plumbline::cli {
namespace {

int report_stop(const TrainOutcome& outcome) {
  constexpr std::size_t kMost = 10;
  for (std::size_t i = 0; i < std::min(kMost, outcome.findings.size()); ++i) {
    hint_finding(outcome.findings[i]);
  }
  for (std::size_t i = 0; i < std::min(kMost, outcome.toy.size()); ++i) hint(outcome.toy[i].text);
  const std::size_t more = outcome.findings.size() + outcome.toy.size();
  if (more > kMost) hint(fmt::format("... {} findings in all", more));
  return outcome.exit_code;
}

void print_losses(const Trainer& trainer, const TrainOutcome& outcome) {
  if (trainer.text() == nullptr) {
    print_line("every contribution arrived exactly once, in every step");
    return;
  }
  if (std::isnan(outcome.validation_loss)) return;
  const Baselines base = text_baselines(trainer.text()->training_part(), trainer.text()->held_out());
  const auto row = [](const char* what, double nats) {
    print_line(fmt::format("  {:<34} {:.3f} bits a byte ({:.3f} nats)", what, nats * kBitsPerNat, nats));
  };
  print_line("held-out text:");
  row("this model, validation loss", outcome.validation_loss);
  row("bigram model of the training part", base.bigram);
  row("unigram entropy", base.unigram);
}

void print_resume(const Resume& resume) {
  for (const std::string& notice : resume.notices) warn(notice);
  if (!resume.found) return;
  const bool persistent = resume.non_persistent == NonPersistent::kNone;
  print_line(fmt::format("loaded  {}{}, going on from iteration {}", resume.path,
                         persistent ? "" : fmt::format(" (non-persistent, {})", name(resume.non_persistent)),
                         resume.counters.iteration));
}

// What a run that goes on elsewhere must equal: the model and the optimizer after the last step, to the bit.
void print_model(const RunRecord& record) {
  const auto last = std::find_if(record.steps.rbegin(), record.steps.rend(),
                                 [](const StepRow& row) { return !row.evaluation; });
  if (last == record.steps.rend()) return;
  print_line(fmt::format("model  {} {} after iteration {}", hex64(last->params_digest),
                         hex64(last->optimizer_digest), last->iteration));
}

}  // namespace

void hint_finding(const Finding& finding) {
  hint(fmt::format("{}: {}", finding_kind_name(finding.kind), finding.why));
  for (const WaitEdge& edge : finding.cycle) {
    hint(fmt::format("  rank {}: {} waits for rank {}: {} ({})", edge.from.rank, edge.from.text, edge.to.rank,
                     edge.to.text, edge.reason));
  }
}

int run_session(const ValidConfig& valid, const std::string& line, const RunOptions& options,
                const RankSession* rank) {
  const bool speaks = rank == nullptr || rank->speaks;
  const bool whole = rank == nullptr || rank->channel == nullptr;  // the record is of all ranks
  RunTable table(valid.config, options.log_interval, options.quiet || !speaks,
                 rank == nullptr ? "virtual time" : "time");
  std::unique_ptr<RecordWriter> writer;
  ProgressBar bar;
  Trainer::Options training;
  if (rank != nullptr) {
    training.driver = rank->driver;
    training.place = rank->place;
    training.channel = rank->channel;
    training.save_channel = rank->save_channel;
  }
  training.on_step = [&](const RunRecord& record) -> Status {
    table.add(record.steps.back());
    return writer->append(record);
  };
  if (speaks) {
    training.on_saved = [&](const Saved& saved) {
      if (!options.quiet) print_line(fmt::format("saved  {}", saved.path));
      for (const std::string& notice : saved.notices) warn(notice);
    };
    training.progress = [&](auto done, auto total, auto what) { bar.show(done, total, what); };
  }
  Result<std::unique_ptr<Trainer>> trainer = Trainer::create(valid.config, std::move(training));
  if (!trainer) return report(trainer.error());
  if (speaks) print_resume((*trainer)->resume());
  RunRecord& record = (*trainer)->record();
  record.producer = fmt::format("plumbline {}", release_version());
  record.command = line;
  if (rank != nullptr) {
    record.cores = rank->cores;
    record.ranks_a_machine = rank->ranks_a_machine;
  }
  Result<RecordWriter> created = RecordWriter::create(options.out, record);
  if (!created) return report(created.error());
  writer = std::make_unique<RecordWriter>(std::move(*created));

  const Result<TrainOutcome> outcome = (*trainer)->run();
  if (!outcome) return report(outcome.error());
  const Status finished = writer->finish(record);
  if (!finished) return report(finished.error());
  if (!speaks) return outcome->exit_code;
  if (outcome->skipped > 0) {
    print_line(fmt::format("{} steps updated the model, {} overflowed and were skipped", outcome->updates,
                           outcome->skipped));
  }
  for (const std::string& notice : outcome->notices) hint(notice);
  if (outcome->exit_code != kExitHolds) {
    report_stop(*outcome);
    if (whole) print_line(fmt::format("record  {}", options.out));
    return outcome->exit_code;
  }
  if (outcome->stopped)
    print_line(fmt::format("stopped after iteration {}: --exit-interval", outcome->iteration));
  if ((*trainer)->evaluates_only())
    print_line(
        fmt::format("forward only: iteration {} is evaluated, nothing is trained", outcome->iteration));
  else if (outcome->updates + outcome->skipped == 0)
    print_line(
        fmt::format("the checkpoint is of iteration {}, and the run ends at {}: nothing was left to train",
                    outcome->iteration, (*trainer)->config().train.iterations));
  print_losses(**trainer, *outcome);
  print_model(record);
  if (!whole) return kExitHolds;  // the record is put together from all ranks'
  print_line(fmt::format("digest  {}", hex64(record.digest())));
  print_line(fmt::format("record  {}", options.out));
  return kExitHolds;
}

void add_backend_options(CLI::App& app, RunOptions& options) {
  app.add_option(
      "--backend", options.backend,
      "sim (all ranks here, in virtual time), gloo (a process a rank), or cuda (GPUs: all ranks in this "
      "process, or with --nproc, --rank or a launcher a process a rank)");
  app.add_option("--nproc", options.nproc, "gloo, cuda: start so many ranks on this machine");
  app.add_option("--rank", options.rank, "gloo, cuda: be this rank of --world-size, started by hand");
  app.add_option("--world-size", options.world, "gloo, cuda: ranks in all");
  app.add_option("--local-rank", options.local_rank,
                 "gloo, cuda: which of this machine's ranks; of cuda also its device");
  app.add_option("--master-addr", options.host,
                 "gloo, cuda: host of rank 0; else MASTER_ADDR, or what the launcher says");
  app.add_option("--master-port", options.port,
                 "gloo, cuda: port of the store; 0 with --nproc: any free one");
  app.add_option("--join-timeout", options.join_timeout,
                 "gloo, cuda: seconds to wait for all ranks; 60 if not given");
  app.add_option("--timeout", options.timeout,
                 "gloo, cuda: seconds without progress after which the run is given up; 0: never");
  app.add_option("--cuda-level", options.cuda_level,
                 "cuda: nccl (a device a rank), loopback (all ranks on one device), self-send (likewise, "
                 "copies by NCCL), or auto");
  app.add_option("--device", options.device, "cuda: the device of loopback and self-send; 0 if not given");
  app.add_option("--compute", options.compute,
                 "cuda: where stages compute: device, host, or auto (device, where this build's LibTorch has "
                 "CUDA and the model can)");
  app.add_option("--arithmetic", options.arithmetic,
                 "who computes stages on the host: engine (the same bits everywhere), or libtorch (its "
                 "operators, as on a device; compare with --tolerance derived)");
}

int run_on_backend(const ValidConfig& valid, const std::string& line, const RunOptions& options) {
  if (options.arithmetic != "engine" && options.arithmetic != "libtorch")
    return report(
        {ErrorCode::kUsage,
         fmt::format("--arithmetic '{}' is not known; known are engine, libtorch", options.arithmetic),
         {}});
  use_libtorch_arithmetic(options.arithmetic == "libtorch");
  if (options.backend == "gloo") return run_over_gloo(valid, line, options);
  if (options.backend == "cuda") return run_on_cuda(valid, line, options);
  if (options.backend == "sim") return run_session(valid, line, options);
  return report({ErrorCode::kUsage,
                 fmt::format("--backend '{}' is not known; known are sim, gloo, cuda", options.backend),
                 {}});
}

namespace {

int train(const ConfigArguments& arguments, const RunOptions& options) {
  const Result<ValidConfig> valid = arguments.load(Purpose::kRun);
  if (!valid) return report(valid.error());
  std::vector<std::string> words = arguments.arguments();
  words.insert(words.begin(), {"plumbline", "run"});
  const std::string line = shell_line(words);
  set_reproduction(line);
  return run_on_backend(*valid, line, options);
}

Run build(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  app.add_option("-o,--out", options->out, "the record's file; run.plmb if not given");
  app.add_option("--log-interval", options->log_interval,
                 "iterations between lines of the table; about 20 lines if not given");
  app.add_flag("-q,--quiet", options->quiet, "no table");
  add_backend_options(app, *options);
  const auto config = add_config_arguments(app);
  return [=]() -> int { return train(*config, *options); };
}

const RegisterCommand kCommand(
    {.name = "run",
     .summary = "train a model, simulated or a process a rank, and record everything",
     .usage = "[CONFIG] [flags] [-o run.plmb] [--backend gloo --nproc N]",
     .examples = {{"plumbline run --pp 4 --num-layers 4 --microbatches 8", "1F1B, fp32"},
                  {"plumbline run cfg.toml --fp16 -o fp16.plmb", ""},
                  {"plumbline run cfg.toml --backend gloo --nproc 4", "four processes, real sockets"},
                  {"plumbline run cfg.toml --backend cuda --nproc 4", "four processes, a GPU each"},
                  {"plumbline run cfg.toml --backend cuda --cuda-level loopback", "all ranks on one GPU"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
