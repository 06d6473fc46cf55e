// setup_optimizer: from settings and a model to (optimizer, scheduler), Megatron-Bridge's entry point.
//
// Order, each step seeing what the one before made: the override provider is asked for rules; they and the
// standard rules give the parameter groups (param_overrides.h); the configuration decides the classes
// (get_megatron_optimizer); the scheduler is made and attached to all groups.
//
// Two ways to run the result. With Collectives in `groups` the optimizer's step() does its own reductions. With
// null ones it is alone, and a Program does the reductions between the phases (megatron_optimizer.h); `place`
// says which shard this rank is all the same.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/base/result.h"
#include "engine/optim/collective.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/param_overrides.h"
#include "engine/optim/param_scheduler.h"
#include "engine/optim/parameter.h"
#include "engine/optim/settings.h"

namespace plumbline {

class ChainedOptimizer;
class GradBuffer;

// Which part of the run this rank is. Sizes are 1 where nothing is shared.
struct OptimizerPlace {
  int rank = 0;  // in the world, for messages
  int dp_rank = 0, dp_size = 1;
  int expert_dp_rank = 0, expert_dp_size = 1;
  int tp_rank = 0, expert_tp_rank = 0;
  int pipeline_rank = 0;  // rank 0's first chunk gets buckets of the default size (param_layout.h)
};

// Process-group collection: this rank's membership in the groups the optimizer reduces over. Null: alone.
struct OptimizerGroups {
  std::shared_ptr<Collective> dp, expert_dp;  // gradients reduced, parameters gathered
  // Norms, zero counts: the ranks that hold different parts of the dense (expert) parameters.
  std::shared_ptr<Collective> grad_stats, expert_grad_stats;
  // found_inf: everyone who shares the decision to skip (model parallel x data parallel x expert). Null: the
  // grad_stats groups of the members.
  std::shared_ptr<Collective> decision;
  std::shared_ptr<Collective> world;  // group keys are agreed here, so that every rank has every group
};

struct OverrideContext {
  const OptimizerSettings& optimizer;
  const SchedulerSettings& scheduler;
  const std::vector<std::vector<ParameterPtr>>& chunks;
};
// May return no rules. An error ends the set-up and is handed on.
using OverrideProvider = std::function<Result<std::vector<ParamRule>>(const OverrideContext&)>;

struct OptimizerInputs {
  OptimizerSettings optimizer;
  SchedulerSettings scheduler;
  std::vector<std::vector<ParameterPtr>> chunks;  // model parameters in registration order, a list a chunk
  // Gloo groups in Megatron: CPU-side groups for saving the distributed optimizer's state through one rank. Here:
  // whether save_parameter_state() and load_parameter_state() may gather over data-parallel ranks. Off: they
  // are refused with this rule, and sharded state dicts are the way.
  bool use_gloo_process_groups = false;
  OptimizerPlace place;
  OptimizerGroups groups;
  // Distributed optimizer: the data-parallel wrapper's buffers, a list a chunk. Empty: made here, with memory of
  // their own.
  std::vector<std::vector<std::shared_ptr<GradBuffer>>> buffers;
  // Multiplies gradients before their data-parallel sum: 1/dp makes it a mean; 1 when the loss is divided by all
  // microbatches of all replicas already.
  float gradient_scale = 1.0f;
  OverrideProvider overrides;        // empty: none
  std::vector<GroupKey> known_keys;  // groups of other ranks, when there is no `groups.world` to ask
};

struct OptimizerAndScheduler {
  OptimizerAndScheduler();
  OptimizerAndScheduler(OptimizerAndScheduler&&) noexcept;
  OptimizerAndScheduler& operator=(OptimizerAndScheduler&&) noexcept;
  ~OptimizerAndScheduler();

  std::unique_ptr<ChainedOptimizer> optimizer;
  std::unique_ptr<OptimizerParamScheduler> scheduler;  // attached to optimizer's groups
};

Result<OptimizerAndScheduler> setup_optimizer(OptimizerInputs inputs);

// Always a chain: one member for the dense parameters (all chunks), one for the expert parameters if the model has
// any on some rank. A rank without parameters gets stubs, whose steps do nothing but reduce. Classes: distributed
// -> DistributedOptimizer (with cpu_offload on a HybridDeviceOptimizer); fp16, bf16 -> Float16...; else
// FP32Optimizer. `inputs.scheduler` and `.overrides` are not read; `rules` are the provider's.
Result<std::unique_ptr<ChainedOptimizer>> get_megatron_optimizer(const OptimizerInputs& inputs,
                                                                 const std::vector<ParamRule>& rules);

// Bridge's _get_scheduler: options of both settings; attached to all groups of the optimizer.
Result<std::unique_ptr<OptimizerParamScheduler>> get_scheduler(const OptimizerSettings& optimizer,
                                                               const SchedulerSettings& scheduler,
                                                               ChainedOptimizer& attached);

// Megatron's choice: a constant scale when one is given, else a dynamic one with fp16, else none. fp32 without the
// distributed optimizer has none in any case.
Result<LossScaler> choose_scaler(const OptimizerSettings& settings);

}  // namespace plumbline
