// BaseOptimizer: the update rule under the mixed-precision wrappers - Adam, AdamW, SGD. It owns parameter
// groups and per-parameter state, reads Parameter::grad (or decoupled_grad, if the state is
// precision-aware) and writes Parameter::value. It knows nothing of scaling, clipping or ranks.
//
// State of Adam: exp_avg, exp_avg_sq, step; of SGD: momentum_buffer. Created at a parameter's first step
// with a gradient (zeros) or by init_state(). A parameter without a gradient is not touched, its step
// neither.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/result.h"
#include "engine/optim/parameter.h"
#include "engine/optim/state_dict.h"

namespace plumbline {

struct ParamState {
  at::Tensor exp_avg, exp_avg_sq;  // Adam
  at::Tensor momentum_buffer;      // SGD with momentum
  at::Tensor master_param;         // hybrid device optimizer: fp32 copy kept in the state
  std::int64_t step = 0;
};

struct BaseOptimizerOptions {
  enum class Rule : std::uint8_t { kAdam, kSgd };
  Rule rule = Rule::kAdam;
  bool decoupled_weight_decay = true;  // AdamW; false: Adam with L2
  DType exp_avg_type = DType::kF32;    // f32, f16, bf16
  DType exp_avg_sq_type = DType::kF32;
  bool precision_aware = false;  // gradients are read from decoupled_grad, in its own precision
};

class BaseOptimizer {
 public:
  BaseOptimizer(std::vector<ParamGroup> groups, BaseOptimizerOptions options);
  virtual ~BaseOptimizer() = default;

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }
  const BaseOptimizerOptions& options() const { return options_; }

  // Null when the parameter has none yet.
  ParamState* find_state(const Parameter& parameter);
  ParamState& state(const Parameter& parameter);  // made (zeros, step 0) when absent
  void erase_state(const Parameter& parameter);
  // The state of `from` becomes that of `to` (a main copy takes the place of its model parameter).
  void move_state(const Parameter& from, const Parameter& to);
  std::size_t states() const { return state_.size(); }
  // Parameters of the groups in order.
  std::vector<ParameterPtr> parameters() const;

  // One update. `gradient_factor` is the clip coefficient, applied while reading; `model` (if given) are
  // the model parameters that receive the rounded result in the same pass, by position of the flattened
  // groups; null entries receive nothing.
  //
  // A group with a `step` of its own counts there: it goes up by one each time and is every updated
  // parameter's step.
  virtual void step(float gradient_factor = 1.0f, const std::vector<Parameter*>* model = nullptr);
  virtual void zero_grad(bool set_to_none = true);

  // torch's form: {"state": {"0": {...}, ...}, "param_groups": [{..., "params": [0, 1]}, ...]}, parameters
  // numbered over the groups in order. Tensors are handles, not copies.
  virtual StateDict state_dict() const;
  // Groups and parameters are matched by position (wrappers reorder first). Sizes and structure must fit;
  // errors name the group, the parameter and the key, and leave everything as it was. Values are copied
  // into existing tensors (converted to the option's precision), absent ones are made; a parameter without
  // saved state loses its own. Settings of the groups are the saved ones.
  virtual Status load_state_dict(const StateDict& state);
  // While on, load_state_dict() takes a saved tensor itself as the state instead of copying it, where
  // nothing would be converted and nobody else shares its memory: same device and precision, contiguous, a
  // storage of its own that appears once. The dictionary's tensors then are the optimizer's.
  // state_loading.h turns it on.
  void adopt_loaded_tensors(bool on) { adopt_loaded_ = on; }
  bool adopts_loaded_tensors() const { return adopt_loaded_; }
  // Makes every parameter's state (zeros, step 0), as needed before a sharded state dict is loaded into it.
  virtual void init_state();

 protected:
  std::vector<ParamGroup> groups_;
  BaseOptimizerOptions options_;
  std::unordered_map<const Parameter*, ParamState> state_;
  bool adopt_loaded_ = false;
};

// Settings of a group as a dictionary (without "params") and back; absent options are None. Unknown keys are
// kept out of the group and reported by name, not lost silently: they make an error.
//
// Accepted besides: "pre_wd_mult" and "pre_lr_mult", and torch's switches as far as they say what is done
// here anyway (amsgrad, maximize and nesterov off, dampening 0, bias_correction on; foreach, fused,
// capturable, differentiable and "params" are of no account).
StateDict group_settings(const ParamGroup& group);
Status apply_group_settings(const StateDict& settings, ParamGroup& group);

}  // namespace plumbline
