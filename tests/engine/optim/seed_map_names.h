// The classes, functions, methods, parameters and return values of Megatron-core's optimizer module and of
// Megatron-Bridge's optim module that docs/seed-map.md has a row for.
#pragma once

#include <vector>

#include "tests/engine/optim/seed_map.h"

namespace plumbline::test {

inline const std::vector<UpstreamName>& upstream_names() {
  static const std::vector<UpstreamName> names{
      // megatron/core/optimizer/optimizer.py
      {"_zero_grad_group_helper", {"group", "set_to_none", "use_decoupled_grad"}, {}},
      {"_multi_tensor_copy_this_to_that", {"this", "that", "overflow_buf"}, {}},
      {"param_group_identifier_keys", {}, {}},
      {"MegatronOptimizer", {"optimizer", "config", "init_state_fn"}, {}},
      {"MegatronOptimizer.get_parameters", {}, {"parameters"}},
      {"MegatronOptimizer.get_main_grads_for_grad_norm", {}, {"gradients"}},
      {"MegatronOptimizer.get_grad_stats_parallel_group", {}, {"group"}},
      {"MegatronOptimizer.prepare_grads", {}, {"found_inf"}},
      {"MegatronOptimizer.step_with_ready_grads", {}, {"success"}},
      {"MegatronOptimizer.get_grad_norm", {}, {"norm"}},
      {"MegatronOptimizer.clip_grad_norm", {"clip_grad"}, {"norm"}},
      {"MegatronOptimizer.count_zeros", {}, {"zeros"}},
      {"MegatronOptimizer.zero_grad", {"set_to_none"}, {}},
      {"MegatronOptimizer.get_loss_scale", {}, {"scale"}},
      {"MegatronOptimizer.scale_loss", {"loss"}, {"scaled"}},
      {"MegatronOptimizer.reload_model_params", {"state_dict"}, {}},
      {"MegatronOptimizer.state_dict", {}, {"state"}},
      {"MegatronOptimizer.load_state_dict", {"state_dict"}, {}},
      {"MegatronOptimizer.state", {}, {}},
      {"MegatronOptimizer.param_groups", {}, {}},
      {"MegatronOptimizer.step", {}, {"success", "grad_norm", "num_zeros"}},
      {"MegatronOptimizer.sharded_state_dict",
       {"model_sharded_state_dict", "is_loading", "metadata"},
       {"state"}},
      {"MegatronOptimizer._extract_common_per_param_step", {"state_dict"}, {"step"}},
      {"MegatronOptimizer._restore_common_per_param_step", {"state_dict", "step"}, {}},
      {"MegatronOptimizer.offload_to_cpu", {}, {}},
      {"MegatronOptimizer.restore_from_cpu", {}, {}},
      {"MegatronOptimizer._filter_and_reorder_param_groups",
       {"current_groups", "state_dict_groups"},
       {"groups"}},
      {"MixedPrecisionOptimizer", {"optimizer", "config", "grad_scaler", "init_state_fn"}, {}},
      {"MixedPrecisionOptimizer._unscale_main_grads_and_check_for_nan", {}, {"found_inf"}},
      {"Float16OptimizerWithFloat16Params", {"optimizer", "config", "grad_scaler", "init_state_fn"}, {}},
      {"Float16OptimizerWithFloat16Params._collect_main_grad_data_for_unscaling", {}, {"gradients"}},
      {"Float16OptimizerWithFloat16Params._get_model_and_main_params_data_float16",
       {},
       {"model_data", "main_data"}},
      {"Float16OptimizerWithFloat16Params._copy_model_grads_to_main_grads", {}, {}},
      {"Float16OptimizerWithFloat16Params._copy_main_params_to_model_params", {}, {}},
      {"Float16OptimizerWithFloat16Params._copy_model_params_to_main_params", {"state_dict"}, {}},
      {"Float16OptimizerWithFloat16Params.state_dict", {"is_loading"}, {"state"}},
      {"FP32Optimizer", {"optimizer", "config", "init_state_fn"}, {}},
      {"ProxyDict", {"inner_dicts"}, {}},
      {"ChainedOptimizer", {"chained_optimizers"}, {}},
      {"ChainedOptimizer.optimizer", {}, {}},
      {"ChainedOptimizer._split_state_dict", {"state_dict"}, {"state_dicts"}},
      {"ChainedOptimizer.grads_states_parallel_group_is_shared", {}, {"shared"}},
      {"ChainedOptimizer.save_parameter_state", {"filename"}, {}},
      {"ChainedOptimizer.load_parameter_state", {"filename", "update_legacy_format"}, {}},
      {"ChainedOptimizer._synchronize_steps", {}, {}},
      // megatron/bridge/training/optim.py
      {"setup_optimizer",
       {"optimizer_config", "scheduler_config", "model", "use_gloo_process_groups", "pg_collection",
        "optimizer_config_override_provider"},
       {"optimizer", "scheduler"}},
      {"_optimizer_state_is_fp32_adam", {"state_dict"}, {"is_fp32_adam"}},
      {"_get_te_fused_adam_class", {}, {"class"}},
      {"memory_efficient_fp32_optimizer_state_loading", {"optimizer"}, {"changed"}},
      {"sync_hybrid_device_optimizer_fp32_master_copies", {"optimizer"}, {"synced"}},
      {"_get_scheduler", {"optimizer_config", "scheduler_config", "optimizer"}, {"scheduler"}},
  };
  return names;
}

}  // namespace plumbline::test
