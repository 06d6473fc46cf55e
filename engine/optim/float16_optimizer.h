// Float16OptimizerWithFloat16Params: fp16 and bf16 parameters with an fp32 main copy each, and native fp32
// parameters beside them. It takes the place of the model's parameters in the base optimizer's groups with
// main Parameters; the model's keep their identity and get the rounded result of each update.
//
// Gradients: main.grad is model.main_grad in fp32 - the same storage when main_grad is fp32, so unscaling
// writes into the buffer -, else model.grad, which is dropped afterwards. Without either there is none
// (upstream keeps the last step's).
//
// State dict: {"optimizer": base optimizer, "grad_scaler": if there is one, "fp32_from_fp16_params": [[main
// copies of group 0], ...]}; loading takes the old names optimizer_state_dict and fp32_from_fp16.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/optim/mixed_precision_optimizer.h"

namespace plumbline {

class Float16OptimizerWithFloat16Params : public MixedPrecisionOptimizer {
 public:
  // `inner`'s groups hold the model's parameters, fp16, bf16 or fp32; states they already have move to the
  // main copies. Refuses other types, and fp16 without a scaler.
  static Result<std::unique_ptr<Float16OptimizerWithFloat16Params>> create(
      std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options, LossScaler scaler,
      InitStateFn init_state = {});

  using Groups = std::vector<std::vector<ParameterPtr>>;  // a list for every group, empty ones too
  const Groups& float16_groups() const { return float16_groups_; }
  const Groups& fp32_from_float16_groups() const { return fp32_from_float16_groups_; }
  const Groups& fp32_from_fp32_groups() const { return fp32_from_fp32_groups_; }

  void copy_model_grads_to_main_grads() override;
  void zero_grad(bool set_to_none = true) override;

  // Megatron's _copy_main_params_to_model_params and _copy_model_params_to_main_params.
  void copy_main_params_to_model_params();
  void copy_model_params_to_main_params();
  // Megatron's _get_model_and_main_params_data_float16: values of fp16/bf16 parameters and of their main
  // copies.
  std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> get_model_and_main_params_data_float16() const;

  Status reload_model_params(const StateDict* state = nullptr) override;  // refuses a state dict
  StateDict state_dict(bool is_loading = false) override;
  Status load_state_dict(const StateDict& state) override;

 private:
  Float16OptimizerWithFloat16Params(std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options,
                                    LossScaler scaler, InitStateFn init_state);
  // Calls visit(model, main) for every fp16 and bf16 parameter, group by group.
  template <typename Visit>
  void for_each_pair(Visit visit) const;
  // `source`: the saved group of each current one.
  Result<std::vector<at::Tensor>> saved_mains(const StateDict& state,
                                              const std::vector<std::size_t>& source) const;

  Groups float16_groups_, fp32_from_float16_groups_, fp32_from_fp32_groups_;
};

}  // namespace plumbline
