#include "engine/program/run_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/config/batch_schedule.h"

namespace plumbline {
namespace {

// The configuration of a step with this many microbatches, and no other.
RunConfig with_microbatches(const RunConfig& config, std::int64_t microbatches) {
  RunConfig out = config;
  out.schedule.microbatches = static_cast<int>(microbatches);
  out.schedule.global_batch_size = 0;
  out.schedule.rampup.clear();
  out.schedule.batch_steps.clear();
  return out;
}

Result<std::size_t> program_for(const RunConfig& config, std::int64_t microbatches, const ModelSizes& sizes,
                                const LowerOptions& lowering, RunPlan& plan) {
  const std::int64_t passes = microbatches * config.schedule.slices;
  for (std::size_t i = 0; i < plan.train.size(); ++i) {
    if (plan.train[i].microbatches == passes) return i;
  }
  Result<Program> program = program_of(with_microbatches(config, microbatches), sizes, lowering);
  if (!program) return tl::unexpected(program.error());
  if (program->microbatches != passes) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("the schedule has {} microbatches, and a step of the run has {}; a listed schedule "
                    "goes with one number of microbatches",
                    program->microbatches, passes));
  }
  plan.train.push_back(std::move(*program));
  return plan.train.size() - 1;
}

}  // namespace

const RunPlan::Stretch& RunPlan::stretch_of(std::int64_t iteration) const {
  PL_ASSERT(!stretches.empty() && iteration >= stretches.front().first);
  const auto after =
      std::upper_bound(stretches.begin(), stretches.end(), iteration,
                       [](std::int64_t value, const Stretch& stretch) { return value < stretch.first; });
  return *(after - 1);
}

std::vector<const Program*> RunPlan::programs() const {
  std::vector<const Program*> out;
  for (const Program& program : train) out.push_back(&program);
  if (evaluation) out.push_back(&*evaluation);
  if (param_sync) out.push_back(&*param_sync);
  return out;
}

Result<std::vector<RunConfig>> step_configs(const RunConfig& config) {
  const Result<NumMicrobatches> batches = num_microbatches_of(config);
  if (!batches) return tl::unexpected(batches.error());
  const Result<NumMicrobatches::Plan> steps = batches->plan(0, std::max(1, config.train.iterations));
  if (!steps) return tl::unexpected(steps.error());
  std::vector<RunConfig> out;
  for (const auto& [iteration, batch] : *steps) {
    const int microbatches = batch.num_microbatches;
    const auto same = [&](const RunConfig& known) { return known.schedule.microbatches == microbatches; };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(with_microbatches(config, microbatches));
  }
  return out;
}

Result<RunPlan> plan_run(const RunConfig& config, const ModelSizes& sizes, const RunPlanOptions& options) {
  const Result<NumMicrobatches> batches = num_microbatches_of(config);
  if (!batches) return tl::unexpected(batches.error());
  const std::int64_t left = std::max<std::int64_t>(1, config.train.iterations - options.iteration);
  const Result<NumMicrobatches::Plan> steps = batches->plan(options.consumed, left);
  if (!steps) return tl::unexpected(steps.error());
  RunPlan plan;
  for (const auto& [iteration, batch] : *steps) {
    const Result<std::size_t> program =
        program_for(config, batch.num_microbatches, sizes, options.lowering, plan);
    if (!program) return tl::unexpected(program.error());
    plan.stretches.push_back({options.iteration + iteration, batch, *program});
  }
  plan.main_program = plan.stretches.back().program;
  for (std::size_t i = 0; i < plan.train.size(); ++i) {
    if (plan.train[i].microbatches == config.passes()) plan.main_program = i;
  }
  const RunConfig steady = with_microbatches(config, config.schedule.microbatches);
  if (options.evaluation) {
    const Result<Schedule> forward = evaluation_schedule_of(steady);
    if (!forward) return tl::unexpected(forward.error());
    Result<Program> evaluation = lower(steady, *forward, sizes, {StepTail::kEvaluate});
    if (!evaluation) return tl::unexpected(evaluation.error());
    plan.evaluation = std::move(*evaluation);
  }
  const bool trains = options.lowering.tail == StepTail::kTrain;
  if (trains && config.optimizer.overlap_param_gather && config.grid.dp() > 1) {
    const Result<Schedule> schedule = schedule_of(steady);
    if (!schedule) return tl::unexpected(schedule.error());
    Result<Program> sync = lower_param_sync(steady, *schedule, sizes);
    if (!sync) return tl::unexpected(sync.error());
    plan.param_sync = std::move(*sync);
  }
  return plan;
}

}  // namespace plumbline
