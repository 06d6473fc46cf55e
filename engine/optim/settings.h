// OptimizerSettings and SchedulerSettings: what setup_optimizer() is made from, as plain values, and their
// conversion from a RunConfig. Lengths of a schedule are in samples, whatever unit the configuration gave
// them in: iterations become the samples those iterations really consume, batch-size ramp-up included
// (NVIDIA-NeMo/Megatron-Bridge#2609 multiplied by the final batch size instead).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/optim/param_scheduler.h"

namespace plumbline {

struct OptimizerSettings {
  OptimizerConfig optimizer;
  LossScaleConfig loss_scale;
  Precision precision = Precision::kFp32;  // of the model's parameters
  // Not in a configuration file.
  double norm_type = 2.0;                    // p of the gradient norm; infinity allowed
  bool log_norm = true;                      // the norm also without clipping
  double grad_norm_skip_threshold = 0.0;     // 0: none
  std::vector<std::string> identifier_keys;  // of groups when a state is loaded; empty: the default four

  static OptimizerSettings of(const RunConfig& config);
};

// Bridge's SchedulerConfig after its conversion to samples.
struct SchedulerSettings {
  double lr_warmup_init = 0.0;
  std::int64_t lr_warmup_steps = 0;  // samples, as all lengths here
  std::int64_t lr_decay_steps = 1;
  DecayStyle lr_decay_style = DecayStyle::kConstant;
  std::int64_t wsd_decay_steps = 0;
  WsdStyle lr_wsd_decay_style = WsdStyle::kExponential;
  double start_weight_decay = 0.01, end_weight_decay = 0.01;
  std::int64_t wd_incr_steps = 1;
  WdStyle weight_decay_incr_style = WdStyle::kConstant;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;

  // `config` has passed validate(). Warm-up by fraction is rounded down to whole samples.
  static Result<SchedulerSettings> of(const RunConfig& config);
};

// Learning rates of the optimizer, lengths and styles of the scheduler.
ParamSchedulerOptions scheduler_options(const OptimizerSettings& optimizer,
                                        const SchedulerSettings& scheduler);

}  // namespace plumbline
