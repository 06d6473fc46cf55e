// WrapperOptimizer: what every Megatron optimizer over one base optimizer does alike - parameters, groups,
// the update with clipping and copy-back in one pass, states, offloading, the parts of a checkpoint that
// come from the base optimizer. FP32Optimizer and MixedPrecisionOptimizer derive from it.
//
// A null base optimizer is not needed for a rank without trainable parameters: groups may be empty, and
// is_stub() then says so; reductions run all the same.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/optim/megatron_optimizer.h"

namespace plumbline {

class WrapperOptimizer : public MegatronOptimizer {
 public:
  // Makes the base optimizer's state before something is loaded into it. Null: BaseOptimizer::init_state.
  using InitStateFn = std::function<void(BaseOptimizer&)>;

  BaseOptimizer& inner() { return *inner_; }
  const BaseOptimizer& inner() const { return *inner_; }
  bool offloaded() const { return offloaded_; }

  std::vector<ParameterPtr> get_parameters() const override { return inner_->parameters(); }
  std::vector<ParamGroup*> param_groups() override;
  ParamState* find_state(const Parameter& parameter) override { return inner_->find_state(parameter); }
  at::Tensor main_grad(const Parameter& parameter) const override;  // decoupled with precision-aware states

  Status finish_step(double norm) override;
  Status step_with_ready_grads() override;

  // Main parameters rounded into the model's, as every update ends: after main parameters were put back.
  void copy_main_to_model();

  void init_state() override;
  Result<ShardedStateDict> sharded_state_dict(bool is_loading, const ShardedMetadata& metadata) override;
  Status load_sharded_objects(const std::vector<ShardedObject>& objects,
                              const ShardedMetadata& metadata) override;
  Status offload_to_cpu() override;
  Status restore_from_cpu() override;

 protected:
  WrapperOptimizer(std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options,
                   InitStateFn init_state);

  // Whether the parameter at a position of the flattened groups is the optimizer's own main copy: moved by
  // offload, saved as fp32_param.
  virtual bool is_main_copy(std::size_t position) const { return targets_[position] != nullptr; }

  // Called for every tensor of a sharded state dict, made as if the value were a whole parameter that all
  // data-parallel ranks have; classes that keep shards say what it is instead.
  virtual void localize(std::size_t, const ShardedMetadata&, ShardedTensor&) const {}

  // The base optimizer's saved dictionary brought into the current order of groups: groups matched by
  // identity, parameters renumbered with their states, a common step (state.common_step) handed to every
  // state.
  struct InnerState {
    StateDict state;                  // as BaseOptimizer::load_state_dict takes it
    std::vector<std::size_t> source;  // by current group: the saved group it was matched with
  };
  Result<InnerState> match_inner_state(const StateDict& saved) const;
  // By current group: the saved group (settings) of the same identity. Refuses lists of different length.
  Result<std::vector<std::size_t>> match_groups(const StateList& saved) const;

  Status ready(const char* what) const;  // an error while offloaded
  Status update(float gradient_factor);

  std::unique_ptr<BaseOptimizer> inner_;
  InitStateFn init_state_;
  // By position of the flattened groups: the parameter that receives the rounded result of the update, null
  // for none. All null at first; derived constructors fill it.
  std::vector<Parameter*> targets_;

 private:
  // Every tensor that offloading moves.
  template <typename Visit>
  void for_each_owned(Visit visit);

  bool offloaded_ = false;
  std::vector<at::Device> homes_;  // of the owned tensors in their order, while offloaded
};

}  // namespace plumbline
