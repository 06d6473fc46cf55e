// `calibrate`: costs of stages and links from a measured run, and how well the simulator predicts others with them.
#include "engine/runtime/calibrate.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/common/record_config.h"
#include "cli/record_file.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/config/explain.h"
#include "engine/program/lower.h"
#include "sim/run.h"

namespace plumbline::cli {
namespace {

struct Options {
  std::string record;
  std::vector<std::string> others;
  std::string out;
};

struct Prediction {
  Nanoseconds predicted = 0;
  double measured = 0.0;
  double error() const { return static_cast<double>(predicted) / measured - 1.0; }
};

// [time] as fitted, and what the record says of the machine it ran on.
void calibrated(RunConfig& config, const Calibration& fitted, const RunRecord& record) {
  config.time = fitted.time_of(config);
  if (config.time.cores > 0 && record.cores > 0) config.time.cores = record.cores;
  if (record.ranks_a_machine > 0 && record.ranks_a_machine < record.ranks)
    config.sim.ranks_per_node = record.ranks_a_machine;
}

// The step of `config` with the fitted costs, in virtual time.
Result<Nanoseconds> predict(RunConfig config, const Calibration& fitted, const RunRecord& record) {
  calibrated(config, fitted, record);
  const Result<Program> program = program_of(config, default_sizes(config));
  if (!program) return tl::unexpected(program.error());
  const Result<SimOutcome> outcome = simulate_run(config, *program, 1);
  if (!outcome) return tl::unexpected(outcome.error());
  if (outcome->record.steps.empty())
    return fail(ErrorCode::kState, "its step does not complete in the simulator");
  return outcome->record.steps.front().end - outcome->record.steps.front().begin;
}

Result<Prediction> judge(const std::string& path, const Calibration& fitted) {
  Result<RunRecord> record = read_record({path});
  if (!record) return tl::unexpected(record.error());
  (void)join_messages(*record);
  const Result<ValidConfig> config = config_of_record(*record, path, Purpose::kSim);
  if (!config) return tl::unexpected(config.error());
  const Result<Calibration> own = calibrate(*record, config->config);
  if (!own) return tl::unexpected(own.error());
  const Result<Nanoseconds> predicted = predict(config->config, fitted, *record);
  if (!predicted) return tl::unexpected(predicted.error());
  const RunConfig& c = config->config;
  print_line(
      fmt::format("  {:<32} pp {}, vp {}, dp {}, m {:<3} measured {:>10}, predicted {:>10}, error {:+.1f} %",
                  path, c.parallel.pp, c.schedule.chunks, c.parallel.dp, c.schedule.microbatches,
                  format_duration(std::llround(own->step)), format_duration(*predicted),
                  (static_cast<double>(*predicted) / own->step - 1.0) * 100.0));
  return Prediction{*predicted, own->step};
}

void print_fit(const Calibration& fitted, Nanoseconds residual) {
  const auto time = [](double nanoseconds) { return format_duration(std::llround(nanoseconds)); };
  print_line(fmt::format("forward   {} a layer, {} more on the first stage, {} on the last",
                         time(fitted.forward_layer), time(fitted.forward_embedding),
                         time(fitted.forward_head)));
  print_line(fmt::format("backward  {} a layer, {} more on the first stage, {} on the last",
                         time(fitted.backward_layer), time(fitted.backward_embedding),
                         time(fitted.backward_head)));
  print_line(fmt::format("optimizer {} a layer of a rank", time(fitted.optimizer)));
  print_line(fmt::format("link      latency {} and {} to wake up, {:.3g} GB/s",
                         format_duration(fitted.link.latency), time(fitted.wake),
                         fitted.link.bytes_per_second / 1e9));
  print_line(fmt::format("host      {} a computation", time(fitted.host)));
  if (fitted.cores > 0) {
    print_line(fmt::format("cores     {} a machine; a computation takes {:.1f} % longer while all are busy",
                           fitted.cores, fitted.interference * 100.0));
    if (fitted.share < 0.95)
      print_line(
          fmt::format("          computations had {:.0f} % of a core while they ran: with no more ranks than "
                      "cores, other programs took the rest",
                      fitted.share * 100.0));
  } else {
    print_line("cores     not known to the record: each rank has one of its own");
  }
  print_line(fmt::format("from {} computations and {} ends of messages; clocks agree to {}", fitted.samples,
                         fitted.transfers, format_duration(residual)));
}

int run(const Options& options) {
  Result<RunRecord> record = read_record({options.record});
  if (!record) return report(record.error());
  const Nanoseconds residual = join_messages(*record);
  const Result<ValidConfig> config = config_of_record(*record, options.record, Purpose::kSim);
  if (!config) return report(config.error());
  const Result<Calibration> fitted = calibrate(*record, config->config);
  if (!fitted) return report(fitted.error());
  print_fit(*fitted, residual);
  print_line("predictions of a step:");
  std::vector<double> errors;
  std::vector<std::string> paths{options.record};
  paths.insert(paths.end(), options.others.begin(), options.others.end());
  for (const std::string& path : paths) {
    const Result<Prediction> prediction = judge(path, *fitted);
    if (!prediction) return report(prediction.error());
    if (&path != &paths.front()) errors.push_back(std::abs(prediction->error()));
  }
  if (!errors.empty()) {
    std::sort(errors.begin(), errors.end());
    print_line(fmt::format("error on {} other runs: median {:.1f} %, worst {:.1f} %", errors.size(),
                           errors[errors.size() / 2] * 100.0, errors.back() * 100.0));
  }
  if (!options.out.empty()) {
    RunConfig with_costs = config->config;
    calibrated(with_costs, *fitted, *record);
    const Status written = write_file(options.out, config_toml(with_costs));
    if (!written) return report(written.error());
    print_line(fmt::format("configuration with these costs  {}", options.out));
  }
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("record", options->record, "the measured run")->required();
  app.add_option("others", options->others, "measured runs of other layouts, to be predicted");
  app.add_option("-o,--out", options->out, "the configuration with the fitted [time], for `plumbline sim`");
  return [=]() -> int { return plumbline::cli::run(*options); };
}

const RegisterCommand kCommand(
    {.name = "calibrate",
     .summary = "fit stage costs and links to a measured run, and predict others",
     .usage = "RUN [OTHER...] [-o calibrated.toml]",
     .examples = {{"plumbline calibrate gloo.plmb -o calibrated.toml", "costs of this machine"},
                  {"plumbline calibrate pp2.plmb pp4.plmb vp2.plmb", "how far off the predictions are"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
