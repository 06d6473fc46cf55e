// FP32Optimizer: parameters, gradients and update in fp32. A parameter's main_grad becomes its grad (the same
// storage). It has no loss scale and looks for no overflow; the option check_for_nan applies.
#pragma once

#include <memory>

#include "engine/optim/wrapper_optimizer.h"

namespace plumbline {

class FP32Optimizer : public WrapperOptimizer {
 public:
  // Refuses parameters that are not fp32.
  static Result<std::unique_ptr<FP32Optimizer>> create(std::unique_ptr<BaseOptimizer> inner,
                                                       MegatronOptimizerOptions options,
                                                       InitStateFn init_state = {});

  void copy_model_grads_to_main_grads() override;
  Result<bool> unscale_local() override;
  void update_scaler(bool) override {}
  void zero_grad(bool set_to_none = true) override;

  at::Tensor get_loss_scale() const override;  // 1
  const LossScaler* scaler() const override { return nullptr; }

  Status reload_model_params(
      const StateDict* state = nullptr) override;  // nothing to do; refuses a state dict
  // The base optimizer's own dictionary.
  StateDict state_dict(bool is_loading = false) override;
  Status load_state_dict(const StateDict& state) override;

 protected:
  using WrapperOptimizer::WrapperOptimizer;
};

}  // namespace plumbline
