// MegatronOptimizer: what training code talks to - Megatron-core's MegatronOptimizer, complete. Two ways to
// drive it:
//
//   - step(): the whole protocol at once, reductions through the Collective given at construction;
//   - the phases one by one, in this order, with the reductions done by a Program between them:
//       copy_model_grads_to_main_grads, unscale_local -> [MAX over everyone who shares the decision] ->
//       found? update_scaler(true) and nothing else
//            : update_scaler(false), norm_local -> [SUM] ->
//              above_skip_threshold(norm)? nothing : finish_step(norm)
//
// step() is written with the phases, so both are one behaviour (test: both drive equal). Where
// update_scaler(false) stands among the rest makes no difference: nothing after the unscaling reads the
// scale.
//
// Overflow: found_inf is agreed before anything depends on it. A skipped step leaves parameters, moments
// and step counts as they were. The scale used to unscale is the one the loss was multiplied with
// (scale_loss() records it); a change in between is an error.
//
// Returned norm and zero count: absent when they were not asked for, for all classes alike (upstream's three
// classes return 0.0, None and a computed norm; docs/optimizer.md). Zeros are counted before clipping.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/optim/base_optimizer.h"
#include "engine/optim/collective.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/parameter.h"
#include "engine/optim/sharded_tensor.h"
#include "engine/optim/state_dict.h"
#include "engine/optim/tensor_ops.h"

namespace plumbline {

struct StepOutcome {
  bool success = false;  // false: overflow, or the norm was above the skip threshold
  bool found_inf = false;
  std::optional<double> grad_norm;  // absent after an overflow, and when neither clipping nor log_norm asked
  std::optional<std::int64_t> num_zeros;
};

struct MegatronOptimizerOptions {
  double clip_grad = 1.0;  // 0: none
  bool log_norm = true;    // compute the norm even without clipping
  double norm_type = 2.0;  // p; infinity allowed
  bool log_num_zeros = false;
  double grad_norm_skip_threshold = 0.0;  // 0: none; a larger norm (not a NaN) skips the step
  // Without a scaler: a NaN or inf in a gradient is an error naming rank, bucket and parameter, on every
  // rank of the group.
  bool check_for_nan = false;
  std::vector<std::string> identifier_keys;  // of param groups; empty: the default four
  std::shared_ptr<Collective> grad_stats;    // null: alone()
  // A tensor-parallel duplicate is counted by tp rank 0 only.
  int tp_rank = 0;
  int expert_tp_rank = 0;
  int rank = 0;  // for messages
};

// Refuses a negative clip_grad or threshold and a norm_type not above 0; create() functions begin with it.
Status check_megatron_options(const MegatronOptimizerOptions& options);

class MegatronOptimizer {
 public:
  explicit MegatronOptimizer(MegatronOptimizerOptions options);
  virtual ~MegatronOptimizer() = default;
  MegatronOptimizer(const MegatronOptimizer&) = delete;
  MegatronOptimizer& operator=(const MegatronOptimizer&) = delete;

  // --- what there is
  // Of the base optimizer's groups, in order: native fp32 parameters, main copies, shards.
  virtual std::vector<ParameterPtr> get_parameters() const = 0;
  // Gradients that count in norms: present, of a parameter that is not `shared`, and not a tensor-parallel
  // duplicate.
  virtual std::vector<at::Tensor> get_main_grads_for_grad_norm() const;
  // The gradient the base optimizer will read, of one of get_parameters(); undefined when there is none.
  virtual at::Tensor main_grad(const Parameter& parameter) const { return parameter.grad; }
  // Of all parameters that have one, those left out of norms too.
  virtual std::vector<at::Tensor> main_gradients() const;
  // The group over which norms and counts are added up.
  virtual const std::shared_ptr<Collective>& get_grad_stats_parallel_group() const {
    return options_.grad_stats;
  }
  const MegatronOptimizerOptions& options() const { return options_; }
  virtual std::vector<ParamGroup*> param_groups() = 0;
  virtual ParamState* find_state(const Parameter& parameter) = 0;
  // A rank without trainable parameters: every step is a no-op but reductions still run.
  virtual bool is_stub() const { return get_parameters().empty(); }

  // --- phases
  virtual void copy_model_grads_to_main_grads() = 0;
  // Multiplies main gradients by 1/scale; whether one was not finite. False without a scaler. An error when
  // the scale is not the one the loss was multiplied with, or while offloaded.
  virtual Result<bool> unscale_local() = 0;
  // unscale_local(), and in the same pass over memory what norm_local() gives afterwards (other orders than 2
  // take a pass of their own). For callers between which nothing touches the gradients; step() is one.
  virtual Result<bool> unscale_local_with_norm(LocalNorm& norm);
  // Option check_for_nan: the first gradient with a NaN or inf is an error. Fine when the option is off or a
  // scaler looks for overflows anyway.
  virtual Status check_for_nan_local() const;
  // Whether this rank's part of the norm is one number: not in a chain with separate groups.
  virtual bool has_local_norm() const { return true; }
  virtual LocalNorm norm_local() const;  // gradients that are not fp32 are widened
  virtual std::int64_t count_zeros_local() const;
  bool wants_norm() const { return options_.clip_grad > 0.0 || options_.log_norm || skips_large_norms(); }
  bool skips_large_norms() const { return options_.grad_norm_skip_threshold > 0.0; }
  bool above_skip_threshold(double norm) const;
  // Clips by `norm` (if clipping is on), updates, copies main parameters to the model's.
  virtual Status finish_step(double norm) = 0;
  virtual void update_scaler(bool found_inf) = 0;

  // --- Megatron's methods, each doing its own reductions
  Result<bool> prepare_grads() { return prepare(nullptr); }  // copy, unscale, agree, update scaler; found_inf
  virtual Status step_with_ready_grads() = 0;                // update and copy back, no clipping
  Result<StepOutcome> step();
  // Reduces gradients that are not reduced yet; prepare_grads() begins with it, a Program does it by itself.
  virtual Status sync_gradients() { return {}; }
  // Gathers updated shards; step() and step_with_ready_grads() end with it, a Program does it by itself.
  virtual Status sync_params() { return {}; }
  Result<double> get_grad_norm();
  virtual Result<LocalNorm> reduced_norm();  // norm_local() added up over the group
  // Norm, then all main_gradients() scaled in place; the norm.
  Result<double> clip_grad_norm(double max_norm);
  virtual Result<std::int64_t> count_zeros();
  // set_to_none drops tensors, otherwise they are filled with zeros (never multiplied: inf * 0 is NaN).
  // main_grad buffers belong to the data-parallel wrapper, which clears them. Forgets the recorded loss
  // scale.
  virtual void zero_grad(bool set_to_none = true) = 0;

  // --- loss scale
  virtual at::Tensor get_loss_scale() const = 0;  // one fp32 element on the parameters' device
  virtual const LossScaler* scaler() const = 0;   // null without
  virtual void set_scaler(const LossScaler&) {}   // takes its state; nothing to do for classes without
  // loss * scale, in the loss' shape; remembers the scale for unscale_local().
  virtual at::Tensor scale_loss(const at::Tensor& loss);

  // --- state Model -> main copies. With a state dict (names to tensors) values come from there: a name
  // must match exactly one entry by suffix and have its shape; classes that keep no shards refuse one.
  virtual Status reload_model_params(const StateDict* state = nullptr) = 0;
  virtual StateDict state_dict(bool is_loading = false) = 0;  // is_loading: init_state_fn first
  // Checked before anything is changed: after an error everything is as it was.
  virtual Status load_state_dict(const StateDict& state) = 0;
  // What the last load had to say: "no grad_scaler in the state: the scale stays 65536".
  virtual std::vector<std::string> load_notices() const { return notices_; }
  struct ShardedMetadata {
    std::string prefix;  // "chained_1."
    int dp_rank = 0;     // replica of what data-parallel ranks share
  };
  virtual Result<ShardedStateDict> sharded_state_dict(bool is_loading, const ShardedMetadata& metadata) = 0;
  // Second half of a sharded load, after the tensors were filled: settings, steps and scaler from the
  // objects, which are found by key.
  virtual Status load_sharded_objects(const std::vector<ShardedObject>& objects,
                                      const ShardedMetadata& metadata) = 0;
  virtual void init_state() = 0;
  // The distributed optimizer's own file beside state_dict(). Refused by classes that keep no shards.
  virtual bool has_parameter_state() const { return false; }
  virtual Result<StateDict> save_parameter_state();
  virtual Status load_parameter_state(const StateDict& state, bool update_legacy_format = false);
  // Moves what the optimizer owns - main copies and states - to the CPU and back; a step in between is an
  // error. A native fp32 parameter is the model's and stays where it is.
  virtual Status offload_to_cpu() = 0;
  virtual Status restore_from_cpu() = 0;

 protected:
  bool counted(const Parameter& parameter) const;
  // prepare_grads(); with `norm` the local norm is taken on the way.
  Result<bool> prepare(LocalNorm* norm);
  at::Tensor loss_scale_tensor(float scale) const;  // get_loss_scale()'s form
  // True if true on any rank of options().grad_stats.
  Result<bool> agree(bool flag);
  // The scale the loss was multiplied with is the scaler's (or was not recorded).
  Status check_recorded_scale() const;
  void forget_recorded_scale();

  MegatronOptimizerOptions options_;
  std::vector<std::string> notices_;
  std::optional<float> recorded_scale_;  // of the losses since the last zero_grad
  bool recorded_scale_changed_ = false;
};

// Adds `more` into `sum`: squares and powers are added, of magnitudes (p infinite) the larger one stays, a
// NaN is kept. Both have the same p.
void add_norm(LocalNorm& sum, const LocalNorm& more);
// Adds up over a group: every member gets the same.
Result<LocalNorm> combine_norm(const LocalNorm& local, Collective& group);

// torch's zero_grad over a group: `decoupled` selects decoupled_grad.
void zero_grad_group_helper(const std::vector<ParameterPtr>& group, bool set_to_none, bool decoupled = false);

// All steps of {"0": {"step": 3}, ...} must be equal (error names two that differ); absent when there is
// none.
Result<std::optional<std::int64_t>> extract_common_per_param_step(const StateDict& state);
void restore_common_per_param_step(StateDict& state, std::int64_t step);

}  // namespace plumbline
