#include "cli/engine/run_table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "cli/common/output.h"
#include "engine/base/units.h"

namespace plumbline::cli {
namespace {

std::string scale_text(double scale) {
  return scale < 1e7 ? fmt::format("{:g}", scale) : fmt::format("{:.3e}", scale);
}

}  // namespace

RunTable::RunTable(const RunConfig& config, int interval, bool quiet, std::string time)
    : interval_(interval > 0 ? interval : std::max(1, config.train.iterations / 20)),
      iterations_(config.train.iterations),
      evaluation_steps_(config.train.eval_iterations),
      quiet_(quiet),
      time_(std::move(time)),
      start_(std::chrono::steady_clock::now()) {}

void RunTable::header() {
  if (begun_) return;
  begun_ = true;
  print_line(fmt::format("{:>9}  {:>8}  {:>10}  {:>9}  {:>9}  {:>12}  {:>8}", "iteration", "loss", "scale",
                         "grad norm", "lr", time_, "wall s"));
}

void RunTable::add(const StepRow& row) {
  if (quiet_) return;
  header();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (row.evaluation) {
    evaluation_sum_ += row.loss;
    if (++evaluation_count_ < evaluation_steps_) return;
    print_line(fmt::format("{:>9}  {:>8.4f}  {:>47}  {:>8.1f}", row.iteration,
                           evaluation_sum_ / evaluation_count_, "validation", wall));
    evaluation_sum_ = 0.0;
    evaluation_count_ = 0;
  } else if (row.skipped || row.iteration == 1 || row.iteration == iterations_ ||
             row.iteration % interval_ == 0) {
    const std::string norm = row.skipped ? "overflow" : fmt::format("{:.4f}", row.grad_norm);
    const std::string zeros = row.zeros >= 0 ? fmt::format("  {} zeros", row.zeros) : std::string();
    print_line(
        fmt::format("{:>9}  {:>8.4f}  {:>10}  {:>9}  {:>9.2e}  {:>12}  {:>8.1f}{}{}", row.iteration, row.loss,
                    scale_text(row.scale), norm, row.lr, format_duration(row.end), wall, zeros,
                    row.skipped ? fmt::format("  skipped, scale {} next", scale_text(row.scale_after)) : ""));
  }
  std::fflush(stdout);
}

}  // namespace plumbline::cli
