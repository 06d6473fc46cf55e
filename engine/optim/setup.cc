#include "engine/optim/setup.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/model/precision.h"
#include "engine/optim/chained_optimizer.h"
#include "engine/optim/distributed_optimizer.h"
#include "engine/optim/float16_optimizer.h"
#include "engine/optim/fp32_optimizer.h"
#include "engine/optim/fused_adam.h"
#include "engine/optim/group_agreement.h"
#include "engine/optim/hybrid_device_optimizer.h"

namespace plumbline {
namespace {

using Buffers = std::vector<std::shared_ptr<GradBuffer>>;

BaseOptimizerOptions base_options(const OptimizerConfig& config) {
  BaseOptimizerOptions options;
  options.rule = config.rule == OptimizerRule::kSgd ? BaseOptimizerOptions::Rule::kSgd
                                                    : BaseOptimizerOptions::Rule::kAdam;
  options.decoupled_weight_decay = config.decoupled_weight_decay;
  options.precision_aware = config.precision_aware;
  options.exp_avg_type = dtype_of(config.exp_avg);
  options.exp_avg_sq_type = dtype_of(config.exp_avg_sq);
  return options;
}

MegatronOptimizerOptions megatron_options(const OptimizerInputs& inputs) {
  const OptimizerSettings& settings = inputs.optimizer;
  MegatronOptimizerOptions options;
  options.clip_grad = settings.optimizer.clip_grad;
  options.log_norm = settings.log_norm;
  options.norm_type = settings.norm_type;
  options.log_num_zeros = settings.optimizer.log_num_zeros;
  options.grad_norm_skip_threshold = settings.grad_norm_skip_threshold;
  options.check_for_nan = settings.optimizer.check_for_nan;
  options.identifier_keys = settings.identifier_keys;
  options.tp_rank = inputs.place.tp_rank;
  options.expert_tp_rank = inputs.place.expert_tp_rank;
  options.rank = inputs.place.rank;
  return options;
}

GradBufferOptions buffer_options(const OptimizerInputs& inputs, bool expert, int chunk) {
  const OptimizerConfig& config = inputs.optimizer.optimizer;
  GradBufferOptions options;
  options.layout.distributed = true;
  options.layout.shards = expert ? inputs.place.expert_dp_size : inputs.place.dp_size;
  options.layout.pad_busbw = config.pad_buckets;
  options.layout.bucket_size = config.bucket_size > 0
                                   ? config.bucket_size
                                   : default_bucket_size(options.layout.shards, config.overlap_grad_reduce,
                                                         inputs.place.pipeline_rank, chunk);
  options.shard = expert ? inputs.place.expert_dp_rank : inputs.place.dp_rank;
  options.rank = inputs.place.rank;
  return options;
}

// The wrapper's buffers of dense or of expert parameters, over all chunks; made where there are none.
Result<Buffers> buffers_of_all(const OptimizerInputs& inputs) {
  Buffers all;
  if (!inputs.buffers.empty()) {
    for (const Buffers& chunk : inputs.buffers) all.insert(all.end(), chunk.begin(), chunk.end());
    return all;
  }
  for (std::size_t chunk = 0; chunk < inputs.chunks.size(); ++chunk) {
    const int number = static_cast<int>(chunk);
    Result<Buffers> made = make_grad_buffers(inputs.chunks[chunk], buffer_options(inputs, false, number),
                                             buffer_options(inputs, true, number));
    if (!made) return made;
    all.insert(all.end(), made->begin(), made->end());
  }
  return all;
}

c10::DeviceType device_of(const std::vector<ParamGroup>& groups) {
  for (const ParamGroup& group : groups) {
    if (!group.params.empty()) return group.params.front()->value.device().type();
  }
  return c10::DeviceType::CPU;
}

Result<std::unique_ptr<BaseOptimizer>> make_inner(std::vector<ParamGroup> groups,
                                                  const OptimizerConfig& config) {
  const BaseOptimizerOptions options = base_options(config);
  if (!config.cpu_offload) {
    const c10::DeviceType device = device_of(groups);
    return make_base_optimizer(std::move(groups), options, device);
  }
  HybridDeviceOptions hybrid;
  hybrid.offload_fraction = config.offload_fraction;
  auto made = HybridDeviceOptimizer::create(std::move(groups), options, hybrid);
  if (!made) return tl::unexpected(std::move(made.error()));
  return std::unique_ptr<BaseOptimizer>(std::move(*made));
}

template <typename Optimizer>
Result<std::unique_ptr<MegatronOptimizer>> as_member(Result<std::unique_ptr<Optimizer>> made) {
  if (!made) return tl::unexpected(std::move(made.error()));
  return std::unique_ptr<MegatronOptimizer>(std::move(*made));
}

// One member: the dense parameters' or the experts' groups.
Result<std::unique_ptr<MegatronOptimizer>> make_member(const OptimizerInputs& inputs,
                                                       std::vector<ParamGroup> groups, bool expert,
                                                       const LossScaler& scaler, const Buffers& buffers) {
  const OptimizerConfig& config = inputs.optimizer.optimizer;
  MegatronOptimizerOptions options = megatron_options(inputs);
  options.grad_stats = expert ? inputs.groups.expert_grad_stats : inputs.groups.grad_stats;
  auto inner = make_inner(std::move(groups), config);
  if (!inner) return tl::unexpected(std::move(inner.error()));
  if (config.distributed) {
    DistributedOptimizer::Placement placement;
    std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(placement.buffers),
                 [&](const std::shared_ptr<GradBuffer>& buffer) { return buffer->key().expert == expert; });
    placement.dp = expert ? inputs.groups.expert_dp : inputs.groups.dp;
    placement.gradient_scale = inputs.gradient_scale;
    placement.main_params_type = dtype_of(config.main_params);
    placement.parameter_state = inputs.use_gloo_process_groups;
    return as_member(
        DistributedOptimizer::create(std::move(*inner), std::move(options), scaler, std::move(placement)));
  }
  if (inputs.optimizer.precision == Precision::kFp32) {
    return as_member(FP32Optimizer::create(std::move(*inner), std::move(options)));
  }
  return as_member(Float16OptimizerWithFloat16Params::create(std::move(*inner), std::move(options), scaler));
}

Result<std::vector<GroupKey>> all_keys(const OptimizerInputs& inputs, const std::vector<ParamRule>& rules) {
  Result<std::vector<GroupKey>> keys = group_keys(inputs.chunks, inputs.optimizer.optimizer, rules);
  if (!keys) return keys;
  keys->insert(keys->end(), inputs.known_keys.begin(), inputs.known_keys.end());
  if (inputs.groups.world == nullptr) return keys;
  return agree_group_keys(*inputs.groups.world, *keys);
}

}  // namespace

OptimizerAndScheduler::OptimizerAndScheduler() = default;
OptimizerAndScheduler::OptimizerAndScheduler(OptimizerAndScheduler&&) noexcept = default;
OptimizerAndScheduler& OptimizerAndScheduler::operator=(OptimizerAndScheduler&&) noexcept = default;
OptimizerAndScheduler::~OptimizerAndScheduler() = default;

Result<LossScaler> choose_scaler(const OptimizerSettings& settings) {
  if (settings.precision == Precision::kFp32 && !settings.optimizer.distributed) return LossScaler{};
  return LossScaler::of(settings.loss_scale, settings.precision);
}

Result<std::unique_ptr<ChainedOptimizer>> get_megatron_optimizer(const OptimizerInputs& inputs,
                                                                 const std::vector<ParamRule>& rules) {
  const Result<std::vector<GroupKey>> keys = all_keys(inputs, rules);
  if (!keys) return tl::unexpected(keys.error());
  Result<std::vector<ParamGroup>> groups =
      build_param_groups(inputs.chunks, inputs.optimizer.optimizer, rules, *keys);
  if (!groups) return tl::unexpected(std::move(groups.error()));
  const Result<LossScaler> scaler = choose_scaler(inputs.optimizer);
  if (!scaler) return tl::unexpected(scaler.error());
  Buffers buffers;
  if (inputs.optimizer.optimizer.distributed) {
    Result<Buffers> all = buffers_of_all(inputs);
    if (!all) return tl::unexpected(std::move(all.error()));
    buffers = std::move(*all);
  }

  std::vector<ParamGroup> dense, expert;
  for (ParamGroup& group : *groups) {
    (group.is_expert_parallel.value_or(false) ? expert : dense).push_back(std::move(group));
  }
  std::vector<std::unique_ptr<MegatronOptimizer>> members;
  for (const bool is_expert : {false, true}) {
    std::vector<ParamGroup>& own = is_expert ? expert : dense;
    if (is_expert && own.empty()) continue;
    auto member = make_member(inputs, std::move(own), is_expert, *scaler, buffers);
    if (!member) return tl::unexpected(std::move(member.error()));
    members.push_back(std::move(*member));
  }
  MegatronOptimizerOptions options = megatron_options(inputs);
  options.grad_stats = inputs.groups.decision;
  const std::size_t count = members.size();
  auto chain = ChainedOptimizer::create(std::move(options), std::move(members));
  if (!chain) return chain;
  std::vector<int> chunks(inputs.chunks.size());
  std::iota(chunks.begin(), chunks.end(), 0);
  (*chain)->set_model_chunks(std::vector<std::vector<int>>(count, chunks));  // members span all chunks
  return chain;
}

Result<std::unique_ptr<OptimizerParamScheduler>> get_scheduler(const OptimizerSettings& optimizer,
                                                               const SchedulerSettings& scheduler,
                                                               ChainedOptimizer& attached) {
  Result<OptimizerParamScheduler> made =
      OptimizerParamScheduler::create(scheduler_options(optimizer, scheduler));
  if (!made) return tl::unexpected(std::move(made.error()));
  auto owned = std::make_unique<OptimizerParamScheduler>(std::move(*made));
  PL_TRY(owned->attach(attached.param_groups()));
  return owned;
}

Result<OptimizerAndScheduler> setup_optimizer(OptimizerInputs inputs) {
  std::vector<ParamRule> rules;
  if (inputs.overrides) {
    Result<std::vector<ParamRule>> given =
        inputs.overrides(OverrideContext{inputs.optimizer, inputs.scheduler, inputs.chunks});
    if (!given) return tl::unexpected(std::move(given.error()));
    rules = std::move(*given);
  }
  OptimizerAndScheduler made;
  auto optimizer = get_megatron_optimizer(inputs, rules);
  if (!optimizer) return tl::unexpected(std::move(optimizer.error()));
  made.optimizer = std::move(*optimizer);
  auto scheduler = get_scheduler(inputs.optimizer, inputs.scheduler, *made.optimizer);
  if (!scheduler) return tl::unexpected(std::move(scheduler.error()));
  made.scheduler = std::move(*scheduler);
  return made;
}

}  // namespace plumbline
