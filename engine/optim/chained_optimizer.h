// ChainedOptimizer: several optimizers driven as one - dense and expert parameters, or one a model chunk.
//
// One decision and one loss scale: all members unscale (none is left out when an earlier one overflowed),
// their findings are or-ed, agreed over the chain's own group, and every member's scaler is updated with
// the agreed flag, so all scalers stay bitwise equal. Upstream updates each scaler with its own member's
// finding while the loss is scaled by the first member's: after an overflow in one member the others
// unscale wrongly (docs/optimizer.md).
//
// Norm: one for all members; each clips by it. When all members share a stats group it is one reduction,
// otherwise each member's part is reduced over its own group and the parts are added.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/optim/megatron_optimizer.h"

namespace plumbline {

class ChainedOptimizer : public MegatronOptimizer {
 public:
  // `options.grad_stats` is the group that agrees on overflow: everyone who shares the decision, so it
  // covers the members' groups; when it is null, it is the members' own if they share one, and refused
  // otherwise. Other options must be the members' too (clipping, norm, zeros), and all members' loss
  // scalers equal. No member at all: a stub that takes part in the reductions. A chain may be a member.
  static Result<std::unique_ptr<ChainedOptimizer>> create(
      MegatronOptimizerOptions options, std::vector<std::unique_ptr<MegatronOptimizer>> members);

  const std::vector<std::unique_ptr<MegatronOptimizer>>& chained_optimizers() const { return members_; }
  Result<MegatronOptimizer*> optimizer() const;  // the member of a chain of one
  // Whether all members, nested ones too, add up norms over the same group (groups of one are the same).
  bool grads_states_parallel_group_is_shared() const;
  // That group; asserts that it is shared.
  const std::shared_ptr<Collective>& get_grad_stats_parallel_group() const override;

  std::vector<ParameterPtr> get_parameters() const override;
  std::vector<at::Tensor> get_main_grads_for_grad_norm() const override;
  std::vector<at::Tensor> main_gradients() const override;
  std::vector<ParamGroup*> param_groups() override;
  ParamState* find_state(const Parameter& parameter) override;
  bool is_stub() const override;  // all members are

  // Phases over all members. norm_local and count_zeros_local need a shared stats group: with separate ones
  // there is no one reduction for them, use get_grad_norm and count_zeros.
  void copy_model_grads_to_main_grads() override;
  Result<bool> unscale_local() override { return unscale(nullptr); }
  Result<bool> unscale_local_with_norm(LocalNorm& norm) override;
  bool has_local_norm() const override { return grads_states_parallel_group_is_shared(); }
  Status check_for_nan_local() const override;
  LocalNorm norm_local() const override;
  std::int64_t count_zeros_local() const override;
  Status finish_step(double norm) override;
  void update_scaler(bool found_inf) override;

  Status step_with_ready_grads() override;
  Status sync_gradients() override;
  Status sync_params() override;
  Result<LocalNorm> reduced_norm() override;
  Result<std::int64_t> count_zeros() override;
  void zero_grad(bool set_to_none = true) override;

  // The first member's, which all others equal: unscale_local() refuses members whose scalers differ.
  at::Tensor get_loss_scale() const override;
  const LossScaler* scaler() const override;
  void set_scaler(const LossScaler& scaler) override;

  // A state dict of model chunks is split by split_state_dict().
  Status reload_model_params(const StateDict* state = nullptr) override;
  // The model chunks of each member by their number in the model. Without it every member has the one chunk
  // there is.
  void set_model_chunks(std::vector<std::vector<int>> chunks);
  // Megatron's _split_state_dict: {"model0": ..., "model1": ...} (or "model_0") to one dictionary a member
  // with its chunks renamed from 0, absent for a member without chunks. With one chunk in the model every
  // member gets the dictionary as it is. (Upstream counts on from member to member, so that two members
  // cannot have the same chunk.)
  Result<std::vector<std::optional<StateDict>>> split_state_dict(const StateDict& state) const;

  // One member: its dictionary. Otherwise {"0": first, "1": second, ...}, the dictionary form of Megatron's
  // list.
  StateDict state_dict(bool is_loading = false) override;
  // That form (read in the order of the numbers), or for one member its dictionary. Members are loaded one
  // by one: after an error in one, those before it are loaded. Loss scalers that differ in the state
  // (upstream lets them) all become the first member's, which is the one the loss is scaled by, with a
  // notice.
  Status load_state_dict(const StateDict& state) override;
  // Megatron's list form.
  StateList state_list(bool is_loading = false);
  Status load_state_list(const StateList& states);
  std::vector<std::string> load_notices() const override;
  // Keys of member i begin with "chained_<i>." unless there is only one.
  Result<ShardedStateDict> sharded_state_dict(bool is_loading, const ShardedMetadata& metadata) override;
  Status load_sharded_objects(const std::vector<ShardedObject>& objects,
                              const ShardedMetadata& metadata) override;
  void init_state() override;
  // {"0": first member's, "1": None when it has none}; for one member its own.
  bool has_parameter_state() const override;
  Result<StateDict> save_parameter_state() override;
  Status load_parameter_state(const StateDict& state, bool update_legacy_format = false) override;
  Status offload_to_cpu() override;
  Status restore_from_cpu() override;

  // Megatron's _synchronize_steps: the one step of all groups that have parameters and keep a step; written
  // to every empty group that keeps one. Different steps are an error. Absent: no such group.
  Result<std::optional<std::int64_t>> synchronize_steps();

 protected:
  ChainedOptimizer(MegatronOptimizerOptions options, std::vector<std::unique_ptr<MegatronOptimizer>> members);

 private:
  Result<bool> unscale(LocalNorm* norm);

  std::vector<std::unique_ptr<MegatronOptimizer>> members_;
  std::vector<std::vector<int>> chunks_;  // by member
};

}  // namespace plumbline
