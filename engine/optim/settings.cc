#include "engine/optim/settings.h"

#include <cmath>

#include <fmt/format.h>

#include "engine/config/batch_schedule.h"

namespace plumbline {
namespace {

// Samples of the last `iterations` steps of a decay that ends after `end` samples.
Result<std::int64_t> samples_before(const RunConfig& config, std::int64_t end, std::int64_t iterations) {
  const Result<NumMicrobatches> batches = num_microbatches_of(config);
  if (!batches) return tl::unexpected(batches.error());
  const Result<std::int64_t> all = batches->iterations_for(end);
  if (!all) return all;
  if (iterations > *all) {
    return fail(ErrorCode::kConfig,
                fmt::format("optimizer.wsd_decay_iterations={} exceeds the {} iterations of the decay — use "
                            "fewer, or a longer decay",
                            iterations, *all));
  }
  const Result<std::int64_t> begin = batches->samples_for(*all - iterations);
  if (!begin) return begin;
  return end - *begin;
}

Result<std::int64_t> decay_samples(const RunConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  if (o.decay_samples > 0) return o.decay_samples;
  if (o.decay_iterations > 0) return samples_of(config, o.decay_iterations);
  return samples_of_run(config);
}

Result<std::int64_t> warmup_samples(const RunConfig& config, std::int64_t decay) {
  const OptimizerConfig& o = config.optimizer;
  if (o.warmup_fraction > 0.0) {
    return static_cast<std::int64_t>(std::floor(o.warmup_fraction * static_cast<double>(decay)));
  }
  if (o.warmup_samples > 0) return o.warmup_samples;
  if (o.warmup_iterations > 0) return samples_of(config, o.warmup_iterations);
  return 0;
}

}  // namespace

OptimizerSettings OptimizerSettings::of(const RunConfig& config) {
  OptimizerSettings settings;
  settings.optimizer = config.optimizer;
  settings.loss_scale = config.loss_scale;
  settings.precision = config.train.precision;
  return settings;
}

Result<SchedulerSettings> SchedulerSettings::of(const RunConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  SchedulerSettings settings;
  settings.lr_warmup_init = o.warmup_init;
  settings.lr_decay_style = o.decay;
  settings.lr_wsd_decay_style = o.wsd_decay;
  settings.weight_decay_incr_style = o.weight_decay_incr;
  settings.start_weight_decay = o.start_weight_decay < 0.0 ? o.weight_decay : o.start_weight_decay;
  settings.end_weight_decay = o.end_weight_decay < 0.0 ? o.weight_decay : o.end_weight_decay;
  settings.override_opt_param_scheduler = o.override_scheduler;
  settings.use_checkpoint_opt_param_scheduler = o.use_checkpoint_scheduler;

  const Result<std::int64_t> decay = decay_samples(config);
  if (!decay) return tl::unexpected(decay.error());
  settings.lr_decay_steps = *decay;
  const Result<std::int64_t> warmup = warmup_samples(config, *decay);
  if (!warmup) return tl::unexpected(warmup.error());
  settings.lr_warmup_steps = *warmup;
  const Result<std::int64_t> run = samples_of_run(config);
  if (!run) return tl::unexpected(run.error());
  settings.wd_incr_steps = *run;
  settings.wsd_decay_steps = o.wsd_decay_samples;
  if (o.wsd_decay_iterations > 0) {
    const Result<std::int64_t> tail = samples_before(config, *decay, o.wsd_decay_iterations);
    if (!tail) return tl::unexpected(tail.error());
    settings.wsd_decay_steps = *tail;
  }
  return settings;
}

ParamSchedulerOptions scheduler_options(const OptimizerSettings& optimizer,
                                        const SchedulerSettings& scheduler) {
  ParamSchedulerOptions options;
  options.init_lr = scheduler.lr_warmup_init;
  options.max_lr = optimizer.optimizer.lr;
  options.min_lr = optimizer.optimizer.min_lr;
  options.lr_warmup_steps = scheduler.lr_warmup_steps;
  options.lr_decay_steps = scheduler.lr_decay_steps;
  options.lr_decay_style = scheduler.lr_decay_style;
  options.wsd_decay_steps = scheduler.wsd_decay_steps;
  options.wsd_decay_style = scheduler.lr_wsd_decay_style;
  options.start_wd = scheduler.start_weight_decay;
  options.end_wd = scheduler.end_weight_decay;
  options.wd_incr_steps = scheduler.wd_incr_steps;
  options.wd_incr_style = scheduler.weight_decay_incr_style;
  options.use_checkpoint = scheduler.use_checkpoint_opt_param_scheduler;
  options.override_checkpoint = scheduler.override_opt_param_scheduler;
  return options;
}

}  // namespace plumbline
