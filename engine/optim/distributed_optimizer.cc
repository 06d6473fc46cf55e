// Creation, gradients and the collectives. Saving and loading: distributed_state.cc, distributed_legacy.cc.
#include "engine/optim/distributed_optimizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/model/tensors.h"

namespace plumbline {
namespace {

bool is_fp32(const Parameter& parameter) { return parameter.value.scalar_type() == at::kFloat; }

Status check_buffers(const DistributedOptimizer::Placement& placement) {
  for (const auto& buffer : placement.buffers) {
    if (!buffer->distributed()) {
      return fail(ErrorCode::kConfig,
                  "distributed optimizer: a gradient buffer without shards; make it with "
                  "the layout option `distributed`");
    }
    if (placement.dp == nullptr) continue;
    const int shards = buffer->layout().options().shards, shard = buffer->options().shard;
    if (shards != placement.dp->size() || shard != placement.dp->rank()) {
      return fail(ErrorCode::kConfig,
                  fmt::format("distributed optimizer: a gradient buffer is laid out for shard {} of {}, the "
                              "data-parallel group has this rank as {} of {}",
                              shard, shards, placement.dp->rank(), placement.dp->size()));
    }
  }
  return {};
}

Status check_membership(const std::vector<ParameterPtr>& models,
                        const DistributedOptimizer::Placement& placement) {
  std::map<const Parameter*, int> places;  // for counting only
  for (const auto& buffer : placement.buffers) {
    for (const ParameterPtr& parameter : buffer->params()) ++places[parameter.get()];
  }
  for (const ParameterPtr& parameter : models) {
    const auto found = places.find(parameter.get());
    const int times = found == places.end() ? 0 : found->second;
    if (times != 1) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("distributed optimizer: parameter {} lies in {} gradient buffers; it must be in one",
                      parameter->name, times));
    }
    places.erase(found);
  }
  for (const auto& buffer : placement.buffers) {
    for (const ParameterPtr& parameter : buffer->params()) {
      if (places.count(parameter.get()) == 0) continue;
      return fail(
          ErrorCode::kConfig,
          fmt::format("distributed optimizer: parameter {} lies in a gradient buffer, but in no parameter "
                      "group (or in two)",
                      parameter->name));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<DistributedOptimizer>> DistributedOptimizer::create(
    std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options, LossScaler scaler,
    Placement placement, InitStateFn init_state) {
  PL_TRY(check_megatron_options(options));
  PL_TRY(check_scaler(scaler, inner->parameters()));
  PL_TRY(check_buffers(placement));
  if (placement.main_params_type != DType::kF32 && !inner->options().precision_aware) {
    return fail(ErrorCode::kConfig,
                fmt::format("distributed optimizer: main parameters in {} need precision-aware states; "
                            "turn them on, or keep fp32",
                            dtype_name(placement.main_params_type)));
  }
  PL_TRY(check_membership(inner->parameters(), placement));
  return std::unique_ptr<DistributedOptimizer>(new DistributedOptimizer(
      std::move(inner), std::move(options), scaler, std::move(placement), std::move(init_state)));
}

DistributedOptimizer::DistributedOptimizer(std::unique_ptr<BaseOptimizer> inner,
                                           MegatronOptimizerOptions options, LossScaler scaler,
                                           Placement placement, InitStateFn init_state)
    : MixedPrecisionOptimizer(std::move(inner), std::move(options), scaler, std::move(init_state)),
      placement_(std::move(placement)) {
  for (int b = 0; b < static_cast<int>(placement_.buffers.size()); ++b) {
    const int count = placement_.buffers[static_cast<std::size_t>(b)]->buckets();
    for (int bucket = 0; bucket < count; ++bucket) buckets_.push_back({b, bucket, false});
  }
  const at::NoGradGuard no_grad;
  build_shards();
}

void DistributedOptimizer::build_shards() {
  std::vector<std::vector<const Parameter*>> models;
  for (const ParamGroup& group : inner_->param_groups()) {
    auto& members = models.emplace_back();
    auto& names = piece_names_.emplace_back();
    for (const ParameterPtr& parameter : group.params) {
      members.push_back(parameter.get());
      names.push_back(piece_name(*parameter));
    }
    std::sort(members.begin(), members.end());  // for look-up only
  }
  std::vector<std::size_t> sizes;
  for (const auto& members : models) {
    const std::size_t before = shards_.size();
    add_shards(members, true);
    add_shards(members, false);
    sizes.push_back(shards_.size() - before);
  }
  split_states();
  targets_.clear();
  std::size_t next = 0;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    ParamGroup& group = inner_->param_groups()[g];
    group.params.clear();
    for (std::size_t i = 0; i < sizes[g]; ++i, ++next) {
      group.params.push_back(shards_[next].main);
      targets_.push_back(shards_[next].target.get());
    }
  }
  fill_group_steps(0);
}

void DistributedOptimizer::add_shards(const std::vector<const Parameter*>& group, bool fp32) {
  for (const BucketPlace& place : buckets_) {
    const GradBuffer& buffer = *placement_.buffers[static_cast<std::size_t>(place.buffer)];
    if ((buffer.key().parameter == DType::kF32) != fp32) continue;
    for (const ParamShard& range : buffer.layout().shard(place.bucket, buffer.options().shard)) {
      const Parameter* model = buffer.params()[static_cast<std::size_t>(range.param)].get();
      if (!std::binary_search(group.begin(), group.end(), model)) continue;
      shards_.push_back(make_shard(place.buffer, place.bucket, range));
    }
  }
}

DistributedOptimizer::Shard DistributedOptimizer::make_shard(int buffer_index, int bucket,
                                                             const ParamShard& range) const {
  const GradBuffer& buffer = *placement_.buffers[static_cast<std::size_t>(buffer_index)];
  Shard shard;
  shard.model = buffer.params()[static_cast<std::size_t>(range.param)];
  shard.buffer = buffer_index;
  shard.bucket = bucket;
  shard.range = range;
  const std::int64_t numel = range.bucket_end - range.bucket_begin;
  shard.gradient = buffer.gradients(bucket).narrow(0, range.bucket_begin, numel);
  const at::Tensor value = buffer.parameters(bucket).narrow(0, range.bucket_begin, numel);

  auto part = std::make_shared<Parameter>(*shard.model);
  part->value = value;
  part->grad.reset();
  part->main_grad.reset();
  part->decoupled_grad.reset();
  part->global_shape.clear();
  part->global_offset.clear();
  part->begin = range.param_begin;
  if (is_fp32(*part)) {
    shard.main = std::move(part);
    return shard;
  }
  shard.target = part;
  shard.main = std::make_shared<Parameter>(*part);
  shard.main->value =
      value.to(scalar_type_of(placement_.main_params_type), /*non_blocking=*/false, /*copy=*/true);
  return shard;
}

// States that the whole parameters already have, cut to the own shards.
void DistributedOptimizer::split_states() {
  for (const Shard& shard : shards_) {
    const ParamState* state = inner_->find_state(*shard.model);
    if (state == nullptr) continue;
    ParamState part;
    part.step = state->step;
    for (at::Tensor ParamState::*tensor : {&ParamState::exp_avg, &ParamState::exp_avg_sq,
                                           &ParamState::momentum_buffer, &ParamState::master_param}) {
      if (!(state->*tensor).defined()) continue;
      part.*tensor =
          (state->*tensor).reshape({-1}).narrow(0, shard.range.param_begin, shard.main->numel()).clone();
    }
    if (part.master_param.defined() && shard.target != nullptr) shard.main->value.copy_(part.master_param);
    part.master_param.reset();  // the main shard is it
    inner_->state(*shard.main) = std::move(part);
  }
  for (const auto& buffer : placement_.buffers) {
    for (const ParameterPtr& parameter : buffer->params()) inner_->erase_state(*parameter);
  }
}

// Groups without a step of their own get that of their states, `fallback` where there is none.
void DistributedOptimizer::fill_group_steps(std::int64_t fallback) {
  for (ParamGroup& group : inner_->param_groups()) {
    if (group.step) continue;
    group.step = fallback;
    for (const ParameterPtr& parameter : group.params) {
      if (const ParamState* state = inner_->find_state(*parameter)) group.step = state->step;
    }
  }
}

Status DistributedOptimizer::reduce_scatter_bucket(int bucket) {
  PL_ASSERT(bucket >= 0 && bucket < buckets());
  BucketPlace& place = buckets_[static_cast<std::size_t>(bucket)];
  if (place.reduced) {
    return fail(ErrorCode::kState,
                fmt::format("rank {}: bucket {} is already reduced in this step", options_.rank, bucket));
  }
  place.reduced = true;
  GradBuffer& buffer = *placement_.buffers[static_cast<std::size_t>(place.buffer)];
  // Here, and not after the sum, the rank whose gradient is bad can still be named.
  if (options_.check_for_nan && scaler() == nullptr && before_reduction_) {
    before_reduction_ = buffer.check_for_nan(place.bucket);
  }
  if (placement_.dp == nullptr) return {};
  buffer.scale(place.bucket, placement_.gradient_scale);
  return placement_.dp->reduce_scatter(buffer.key().gradient, ReduceOp::kSum,
                                       buffer.gradient_bytes(place.bucket).data(),
                                       static_cast<std::size_t>(buffer.layout().shard_numel(place.bucket)));
}

Status DistributedOptimizer::sync_gradients() {
  if (placement_.dp == nullptr) return {};
  for (int bucket = 0; bucket < buckets(); ++bucket) {
    if (!buckets_[static_cast<std::size_t>(bucket)].reduced) PL_TRY(reduce_scatter_bucket(bucket));
  }
  return agree_before_reduction();
}

Status DistributedOptimizer::all_gather_bucket(int bucket) {
  PL_ASSERT(bucket >= 0 && bucket < buckets());
  if (placement_.dp == nullptr) return {};
  const BucketPlace& place = buckets_[static_cast<std::size_t>(bucket)];
  const GradBuffer& buffer = *placement_.buffers[static_cast<std::size_t>(place.buffer)];
  return placement_.dp->all_gather(buffer.key().parameter, buffer.parameter_bytes(place.bucket).data(),
                                   static_cast<std::size_t>(buffer.layout().shard_numel(place.bucket)));
}

Status DistributedOptimizer::sync_params() {
  for (int bucket = 0; bucket < buckets(); ++bucket) PL_TRY(all_gather_bucket(bucket));
  return {};
}

void DistributedOptimizer::copy_model_grads_to_main_grads() {
  const at::NoGradGuard no_grad;
  for (BucketPlace& place : buckets_) place.reduced = false;
  for (Shard& shard : shards_) {
    if (inner_->options().precision_aware) {
      shard.main->decoupled_grad = shard.gradient;
    } else {
      shard.main->grad = shard.gradient.to(at::kFloat);  // the same storage when it is fp32
    }
    shard.model->grad.reset();
  }
}

Status DistributedOptimizer::agree_before_reduction() {
  if (placement_.dp == nullptr || !options_.check_for_nan || scaler() != nullptr) return {};
  const Status own = std::exchange(before_reduction_, Status());
  const Result<bool> bad = agree(!own.has_value());
  if (!bad) return tl::unexpected(bad.error());
  if (!own || !*bad) return own;
  return fail(ErrorCode::kState,
              fmt::format("rank {}: a gradient of another rank is not finite; its own message names "
                          "the parameter",
                          options_.rank));
}

void DistributedOptimizer::zero_grad(bool set_to_none) {
  forget_recorded_scale();
  std::vector<ParameterPtr> mains;
  for (const Shard& shard : shards_) mains.push_back(shard.main);
  zero_grad_group_helper(mains, set_to_none, inner_->options().precision_aware);
  for (const auto& buffer : placement_.buffers) zero_grad_group_helper(buffer->params(), set_to_none);
  for (BucketPlace& place : buckets_) place.reduced = false;
  before_reduction_ = {};
}

}  // namespace plumbline
