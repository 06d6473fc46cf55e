// MixedPrecisionOptimizer: what the fp16/bf16 optimizers share - the loss scaler and the unscaling that
// looks for overflows (megatron/core/optimizer/optimizer.py).
//
//   fp16                  needs a scaler, constant or dynamic; refused without one
//   bf16 without a scaler looks for no overflow: a NaN goes into the weights, unless the option check_for_nan
//                         makes it an error
//   bf16 with one         (a constant scale) is checked like fp16
#pragma once

#include <memory>
#include <vector>

#include "engine/optim/wrapper_optimizer.h"

namespace plumbline {

class MixedPrecisionOptimizer : public WrapperOptimizer {
 public:
  Result<bool> unscale_local() override { return unscale(nullptr); }
  Result<bool> unscale_local_with_norm(LocalNorm& norm) override;
  void update_scaler(bool found_inf) override { scaler_.update(found_inf); }

  at::Tensor get_loss_scale() const override;  // 1 without a scaler
  const LossScaler* scaler() const override { return scaler_.checks() ? &scaler_ : nullptr; }
  void set_scaler(const LossScaler& scaler) override { scaler_ = scaler; }

  // With is_loading the states are made first (InitStateFn).
  StateDict state_dict(bool is_loading = false) override;
  // Keys of a sharded checkpoint: WrapperOptimizer's and optimizer.grad_scaler.
  Result<ShardedStateDict> sharded_state_dict(bool is_loading, const ShardedMetadata& metadata) override;
  Status load_sharded_objects(const std::vector<ShardedObject>& objects,
                              const ShardedMetadata& metadata) override;

  // Megatron's _collect_main_grad_data_for_unscaling: the gradients to unscale, whole, those left out of
  // norms too.
  std::vector<at::Tensor> collect_main_grad_data_for_unscaling() const;
  // Megatron's _unscale_main_grads_and_check_for_nan: unscale_local(), then agreed over the group.
  Result<bool> unscale_main_grads_and_check_for_nan();

 protected:
  MixedPrecisionOptimizer(std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options,
                          LossScaler scaler, InitStateFn init_state);

  // The rule above, for create() functions: `models` are the parameters of the model.
  static Status check_scaler(const LossScaler& scaler, const std::vector<ParameterPtr>& models);
  // "grad_scaler" of a state dict, if any, into `scaler`; missing or superfluous: a notice.
  Status load_scaler(const StateDict& state, LossScaler& scaler, std::vector<std::string>& notices) const;

  LossScaler scaler_;

 private:
  // Squares of the gradients that count go into `norm`.
  Result<bool> unscale(ExactSum* norm);
};

}  // namespace plumbline
