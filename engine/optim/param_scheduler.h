// OptimizerParamScheduler: learning rate and weight decay of every parameter group as a function of n, the
// samples (or steps) of successful updates (megatron/core/optimizer_param_scheduler.py). It writes
// ParamGroup::lr and ::weight_decay; a skipped step does not advance it. With w = warm-up, d = decay, s =
// WSD decay, all in the unit of n; max, min and the weight decay's ends of the group where it has its own:
//
//   lr(n)  n <= w, w > 0: init + (max - init) * n / w      constant: max       n > d: min
//          inverse square root: max(min, max * sqrt(max(w, 1)) / sqrt(max(n, 1)))
//          else min + c * (max - min) with x = (n - w) / (d - w), y = (n - (d - s)) / s and
//          c = 1 - x (linear), (cos(pi x) + 1) / 2 (cosine), WSD: 1 while n <= d - s, then 1 - y (linear),
//          (cos(pi y) + 1) / 2 (cosine), 2 * 0.5^y - 1 (exponential), 1 - sqrt(y) (minus-sqrt)
//   wd(n)  n > increase: end      constant: end      else start + c * (end - start) with r = n / increase and
//          c = r (linear), (cos(pi (1 - r)) + 1) / 2 (cosine)
//
// A group's lr_mult and wd_mult multiply the result.
//
// Departures from upstream, each tested: load_state_dict() sets the counter instead of adding to it, and
// the groups have the loaded values at once; init_lr and the WSD fields are saved too; a use-checkpoint
// load never removes a group's own overrides; lr_mult, which current Megatron leaves out.
#pragma once

#include <cstdint>
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
  // Refuses what Megatron refuses, at once and not when the value is first needed; the message names the
  // rule. Besides: lengths below 0, and those that a formula would divide by when they are 0.
  static Result<OptimizerParamScheduler> create(const ParamSchedulerOptions& options);

  // The groups written to by step(); not owned, set again when they move. Writes the current values. A group
  // whose own start_wd and end_wd differ is refused with constant weight decay, and nothing attached.
  Status attach(std::vector<ParamGroup*> groups);
  void step(std::int64_t increment);

  std::int64_t num_steps() const { return num_steps_; }
  double get_lr(const ParamGroup& group) const;  // what step() would write, lr_mult included
  double get_wd(const ParamGroup& group) const;  // likewise, wd_mult included
  const ParamSchedulerOptions& options() const { return options_; }

  // Megatron's ten keys in its order, then init_lr, wsd_decay_steps and lr_wsd_decay_style.
  StateDict state_dict() const;
  // Each setting by the options' rule: use_checkpoint takes the saved one, override_checkpoint keeps this
  // run's, neither: they must be equal. The WSD fields count with that style only; weight decay, init_lr
  // and WSD fields may be missing (older files) and are then this run's. Old names accepted, and preferred
  // as upstream does (start_lr, warmup_iter, warmup_steps, end_iter, decay_steps, decay_style, num_iters).
  // `notices` (may be null) receives a sentence for every setting that differed. Refused: nothing has
  // changed.
  Status load_state_dict(const StateDict& state, std::vector<std::string>* notices = nullptr);

 private:
  static Status check(const ParamSchedulerOptions& options);
  static Status check_groups(const ParamSchedulerOptions& options, const std::vector<ParamGroup*>& groups);

  ParamSchedulerOptions options_;
  std::int64_t num_steps_ = 0;
  std::vector<ParamGroup*> groups_;
};

}  // namespace plumbline
