// OptimizerParamScheduler: learning rate and weight decay of every parameter group as a function of the samples
// (or steps) of successful updates (megatron/core/optimizer_param_scheduler.py; specs: megatron.md B.6). It
// writes ParamGroup::lr and ::weight_decay; a skipped step does not advance it.
//
// Departures from upstream, each tested: load_state_dict() sets the counter instead of adding to it, and the
// groups have the loaded values at once; init_lr and the WSD fields are saved too; a use-checkpoint load never
// removes a group's own overrides.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/optim/parameter.h"
#include "engine/optim/state_dict.h"

namespace plumbline {

struct ParamSchedulerOptions {
  double init_lr = 0.0, max_lr = 1e-3, min_lr = 0.0;
  std::int64_t lr_warmup_steps = 0;
  std::int64_t lr_decay_steps = 1;
  DecayStyle lr_decay_style = DecayStyle::kConstant;
  std::int64_t wsd_decay_steps = 0;
  WsdStyle wsd_decay_style = WsdStyle::kLinear;
  double start_wd = 0.01, end_wd = 0.01;
  std::int64_t wd_incr_steps = 1;
  WdStyle wd_incr_style = WdStyle::kConstant;
  bool use_checkpoint = false;       // use_checkpoint_opt_param_scheduler: loaded settings win
  bool override_checkpoint = false;  // override_opt_param_scheduler: settings given here win
};

class OptimizerParamScheduler {
 public:
  // Refuses what Megatron refuses; the message names the rule.
  static Result<OptimizerParamScheduler> create(const ParamSchedulerOptions& options);

  // The groups written to by step(); not owned, set again when they move. Writes the current values.
  void attach(std::vector<ParamGroup*> groups);
  void step(std::int64_t increment);

  std::int64_t num_steps() const { return num_steps_; }
  double get_lr(const ParamGroup& group) const;
  double get_wd(const ParamGroup& group) const;  // wd_mult included
  const ParamSchedulerOptions& options() const { return options_; }

  StateDict state_dict() const;
  // Old names accepted (start_lr, warmup_iter, warmup_steps, end_iter, decay_steps, decay_style, num_iters).
  // `notices` (may be null) receives sentences about what was taken from where.
  Status load_state_dict(const StateDict& state, std::vector<std::string>* notices = nullptr);

 private:
  ParamSchedulerOptions options_;
  std::int64_t num_steps_ = 0;
  std::vector<ParamGroup*> groups_;
};

}  // namespace plumbline
