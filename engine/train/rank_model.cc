#include "engine/train/rank_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/train/digests.h"

namespace plumbline {
namespace {

void hash_tensor(Hasher& hasher, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::Tensor dense = tensor.contiguous();
  hasher.bytes(dense.data_ptr(), static_cast<std::size_t>(dense.nbytes()));
}

int chunk_of(const std::vector<Stage*>& stages, int stage) {
  return static_cast<int>(std::count_if(stages.begin(), stages.begin() + stage,
                                        [](const Stage* held) { return held != nullptr; }));
}

}  // namespace

Result<std::unique_ptr<RankModel>> RankModel::create(Parts parts) {
  std::unique_ptr<RankModel> model(new RankModel(std::move(parts)));
  PL_TRY(model->make_parameters());
  PL_TRY(model->make_buffers());
  const RunConfig& config = *model->parts_.config;
  OptimizerInputs inputs;
  inputs.optimizer = OptimizerSettings::of(config);
  inputs.optimizer.optimizer.distributed =
      config.optimizer.distributed && (!model->parts_.alone || config.optimizer.precision_aware);
  inputs.optimizer.optimizer.cpu_offload = config.optimizer.cpu_offload && !model->parts_.alone;
  Result<SchedulerSettings> scheduler = SchedulerSettings::of(config);
  if (!scheduler) return tl::unexpected(scheduler.error());
  inputs.scheduler = *scheduler;
  for (std::size_t stage = 0; stage < model->parts_.stages.size(); ++stage) {
    if (model->parts_.stages[stage] == nullptr) continue;
    std::vector<ParameterPtr>& chunk = inputs.chunks.emplace_back();
    for (std::size_t i = 0; i < model->params_.size(); ++i) {
      if (model->slices()[i].stage == static_cast<int>(stage)) chunk.push_back(model->params_[i]);
    }
    auto& buffers = inputs.buffers.emplace_back();
    if (model->buffers_[stage] != nullptr) buffers.push_back(model->buffers_[stage]);
  }
  inputs.place.rank = model->parts_.rank;
  if (!model->parts_.alone) {
    inputs.place.dp_rank = config.grid.coordinate(model->parts_.rank, Axis::kDp);
    inputs.place.dp_size = config.grid.dp();
    inputs.place.pipeline_rank = config.grid.coordinate(model->parts_.rank, Axis::kPp);
  }
  inputs.known_keys = model->parts_.known_keys;
  Result<OptimizerAndScheduler> made = setup_optimizer(std::move(inputs));
  if (!made) return tl::unexpected(made.error());
  model->made_ = std::move(*made);
  return model;
}

at::Tensor& RankModel::leaf(const ParameterSlice& slice) const {
  return parts_.stages[static_cast<std::size_t>(slice.stage)]
      ->parameters()[static_cast<std::size_t>(slice.index)]
      .value;
}

const at::Tensor& RankModel::value_of(const ParameterSlice& slice) const {
  const auto found = std::find_if(slices().begin(), slices().end(), [&](const ParameterSlice& own) {
    return own.stage == slice.stage && own.index == slice.index;
  });
  PL_ASSERT(found != slices().end());
  return params_[static_cast<std::size_t>(found - slices().begin())]->value;
}

Status RankModel::make_parameters() {
  for (const ParameterSlice& slice : parts_.slices) {
    StageParameter& given = parts_.stages[static_cast<std::size_t>(slice.stage)]
                                ->parameters()[static_cast<std::size_t>(slice.index)];
    auto parameter = std::make_shared<Parameter>();
    parameter->name = slice.name;
    parameter->value = given.value;
    if (parts_.place != nullptr) {
      const at::NoGradGuard no_grad;
      Result<at::Tensor> host = shared_tensor(*parts_.place, given.value.sizes(), given.value.scalar_type());
      if (!host) return tl::unexpected(host.error());
      host->copy_(given.value);
      given.value.set_data(seen_from(parts_.place->device, *host));
      parameter->value = host->requires_grad_(true);
    }
    parameter->global = slice.global;
    parameter->shared = !slice.counted;
    parameter->shared_embedding = slice.tied;
    parameter->embedding_or_output = given.tied || given.embedding_or_output;
    params_.push_back(std::move(parameter));
  }
  return {};
}

void RankModel::follow_parameters(int stage) {
  if (parts_.place == nullptr) return;
  for (std::size_t i = 0; i < slices().size(); ++i) {
    if (slices()[i].stage != stage) continue;
    at::Tensor& seen = leaf(slices()[i]);
    const at::Tensor& value = params_[i]->value;
    if (seen.data_ptr() != value.data_ptr()) seen.set_data(seen_from(parts_.place->device, value));
  }
}

Status RankModel::make_buffers() {
  const RunConfig& config = *parts_.config;
  const int replicas = parts_.alone ? 1 : config.grid.dp();
  buffers_.resize(parts_.stages.size());
  for (std::size_t stage = 0; stage < parts_.stages.size(); ++stage) {
    std::vector<ParameterPtr> held;
    for (std::size_t i = 0; i < params_.size(); ++i) {
      if (slices()[i].stage == static_cast<int>(stage)) held.push_back(params_[i]);
    }
    if (held.empty()) continue;
    const int number = static_cast<int>(stage);
    GradBufferOptions options;
    options.layout = param_layout_options(config.optimizer, replicas,
                                          parts_.alone ? 0 : config.grid.coordinate(parts_.rank, Axis::kPp),
                                          chunk_of(parts_.stages, number));
    if (parts_.alone) options.layout.distributed = config.optimizer.precision_aware;
    options.shard = parts_.alone ? 0 : config.grid.coordinate(parts_.rank, Axis::kDp);
    options.own_memory = parts_.alone;
    options.rank = parts_.rank;
    auto made = GradBuffer::create(std::move(held), options);
    if (!made) return tl::unexpected(made.error());
    buffers_[stage] = std::move(*made);
  }
  return {};
}

float RankModel::scale() const { return scaler() == nullptr ? 1.0f : scaler()->scale(); }

double RankModel::lr() const { return scheduler().get_lr(ParamGroup{}); }

void RankModel::bind_gradients(int stage, std::byte* memory) {
  GradBuffer* grads = buffer(stage);
  if (grads == nullptr) return;
  for (int bucket = 0; bucket < grads->buckets(); ++bucket) {
    const std::int64_t begin = grads->layout().buckets()[static_cast<std::size_t>(bucket)].begin;
    grads->bind_gradients(bucket, memory + begin * dtype_bytes(grads->key().gradient));
  }
}

void RankModel::bind_parameters(int stage, std::byte* memory) {
  GradBuffer* grads = buffer(stage);
  if (grads == nullptr) return;
  for (int bucket = 0; bucket < grads->buckets(); ++bucket) {
    const std::int64_t begin = grads->layout().buckets()[static_cast<std::size_t>(bucket)].begin;
    grads->bind_parameters(bucket, memory + begin * dtype_bytes(grads->key().parameter));
  }
}

// Calls visit(bucket, begin of the bucket, begin of the own part in it, begin of that in the shards, size), in bytes.
template <typename Visit>
void RankModel::for_each_shard(int stage, Visit visit) const {
  const GradBuffer* grads = buffer(stage);
  if (grads == nullptr) return;
  const auto element = static_cast<std::ptrdiff_t>(dtype_bytes(grads->key().parameter));
  std::ptrdiff_t kept = 0;
  for (int bucket = 0; bucket < grads->buckets(); ++bucket) {
    const std::ptrdiff_t size = grads->layout().shard_numel(bucket) * element;
    const std::ptrdiff_t begin = grads->layout().buckets()[static_cast<std::size_t>(bucket)].begin * element;
    visit(bucket, begin, grads->options().shard * size, kept, size);
    kept += size;
  }
}

void RankModel::bind_shard(int stage, std::byte* memory) {
  for_each_shard(
      stage, [&](int bucket, std::ptrdiff_t, std::ptrdiff_t own, std::ptrdiff_t kept, std::ptrdiff_t size) {
        std::memcpy(memory + kept, buffer(stage)->parameter_bytes(bucket).data() + own,
                    static_cast<std::size_t>(size));
      });
  shards_[stage] = memory;
  reshard(stage);
}

void RankModel::unshard(int stage, std::byte* whole) {
  for_each_shard(stage, [&](int bucket, std::ptrdiff_t begin, std::ptrdiff_t own, std::ptrdiff_t kept,
                            std::ptrdiff_t size) {
    std::memcpy(whole + begin + own, shards_.at(stage) + kept, static_cast<std::size_t>(size));
    buffer(stage)->point_parameters(bucket, whole + begin);
  });
}

// The bucket's tensors begin where a whole bucket around the own part would: only that part is memory.
void RankModel::reshard(int stage) {
  for_each_shard(
      stage, [&](int bucket, std::ptrdiff_t, std::ptrdiff_t own, std::ptrdiff_t kept, std::ptrdiff_t) {
        const auto around =
            reinterpret_cast<std::uintptr_t>(shards_.at(stage) + kept) - static_cast<std::uintptr_t>(own);
        buffer(stage)->point_parameters(bucket, reinterpret_cast<std::byte*>(around));
      });
}

void RankModel::zero_gradients() {
  optimizer().zero_grad();
  for (const auto& grads : buffers_) {
    if (grads != nullptr) grads->zero();
  }
}

Status RankModel::collect_leaf_gradients(int stage) {
  for (std::size_t i = 0; i < slices().size(); ++i) {
    if (slices()[i].stage != stage) continue;
    at::Tensor& value = leaf(slices()[i]);
    const at::Tensor gradient = value.grad();
    if (!gradient.defined()) continue;
    PL_TRY(add_to_main(i, gradient));
    value.mutable_grad().reset();
  }
  return {};
}

// Where the gradient is: its place of the buffer is the same memory.
Status RankModel::add_to_main(std::size_t slice, const at::Tensor& gradient) {
  Parameter& parameter = *params_[slice];
  if (parts_.place == nullptr) return accumulate_main_grad(parameter, gradient);
  Parameter seen;
  seen.name = parameter.name;
  seen.main_grad = seen_from(parts_.place->device, parameter.main_grad);
  return accumulate_main_grad(seen, gradient);
}

std::vector<at::Tensor> RankModel::take_leaf_gradients(int stage) {
  std::vector<at::Tensor> out(slices().size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (slices()[i].stage == stage) std::swap(out[i], leaf(slices()[i]).mutable_grad());
  }
  return out;
}

void RankModel::put_leaf_gradients(std::vector<at::Tensor> gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) leaf(slices()[i]).mutable_grad() = std::move(gradients[i]);
  }
}

at::Tensor RankModel::tied_gradient(std::size_t slice) const {
  const GradBuffer& grads = *buffer(slices()[slice].stage);
  return grads.distributed() ? grads.shard_gradients(params_[slice]->bucket)
                             : params_[slice]->main_grad.view({-1});
}

std::vector<std::size_t> RankModel::tied_slices() const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < slices().size(); ++i) {
    if (slices()[i].tied) out.push_back(i);
  }
  return out;
}

std::vector<RankModel::OwnPart> RankModel::own_parts() const {
  const at::NoGradGuard no_grad;
  // Main parameters carry their model parameter's number and whether they are the tied one's further use.
  std::map<std::pair<int, bool>, std::size_t> slice_of;
  for (std::size_t i = 0; i < params_.size(); ++i) slice_of[{params_[i]->global, params_[i]->shared}] = i;
  std::vector<OwnPart> out;
  for (const ParameterPtr& main : optimizer().get_parameters()) {
    const std::size_t i = slice_of.at({main->global, main->shared});
    OwnPart part;
    part.slice = &slices()[i];
    part.begin = main->begin;
    part.value = params_[i]->value.detach().reshape({-1}).narrow(0, main->begin, main->numel());
    part.gradient = params_[i]->main_grad.reshape({-1}).narrow(0, main->begin, main->numel());
    part.main = main->value.detach().reshape({-1});
    if (const ParamState* state = optimizer().find_state(*main)) part.state = *state;
    out.push_back(std::move(part));
  }
  return out;
}

ShardedTensor RankModel::whole_weight(const ParameterSlice& slice) const {
  ShardedTensor tensor;
  tensor.key = "model." + slice.name;
  tensor.data = value_of(slice).detach();
  tensor.local_shape = tensor.global_shape = tensor.data.sizes().vec();
  tensor.offset.assign(tensor.global_shape.size(), 0);
  tensor.replica = slice.counted ? 0 : 1;
  return tensor;
}

std::vector<ShardedTensor> RankModel::weights_to_save() const {
  std::vector<ShardedTensor> out;
  const bool sharded = parts_.config->optimizer.distributed;
  for (const OwnPart& part : own_parts()) {
    ShardedTensor tensor = whole_weight(*part.slice);
    if (sharded) {
      tensor.data = part.value;
      tensor.flattened = true;
      tensor.flat_begin = part.begin;
    } else {
      tensor.replica += sharded_metadata().dp_rank;
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

std::vector<ShardedTensor> RankModel::weights_to_load() const {
  std::vector<ShardedTensor> out;
  for (const ParameterSlice& slice : slices()) out.push_back(whole_weight(slice));
  return out;
}

MegatronOptimizer::ShardedMetadata RankModel::sharded_metadata() const {
  return {"", parts_.alone ? 0 : parts_.config->grid.coordinate(parts_.rank, Axis::kDp)};
}

std::uint64_t RankModel::parameter_digest(const ParameterSlice& slice) const {
  Hasher hasher;
  hasher.text(slice.name);
  hash_tensor(hasher, value_of(slice).detach());
  return hasher.digest();
}

std::uint64_t state_digest(const RankModel::OwnPart& part) {
  Hasher hasher;
  hasher.text(part.slice->name);
  for (const at::Tensor& tensor :
       {part.main, part.state.exp_avg, part.state.exp_avg_sq, part.state.momentum_buffer})
    hash_tensor(hasher, tensor);
  hasher.i64(part.state.step);
  return hasher.digest();
}

ParameterDigests digest_of_parameter(std::span<const RankModel::OwnPart> parts) {
  const ParameterSlice& slice = *parts.front().slice;
  Hasher value, state;
  value.text(slice.name);
  state.text(slice.name);
  std::int64_t next = 0;
  for (const RankModel::OwnPart& part : parts) {
    PL_ASSERT_MSG(part.begin == next, fmt::format("parts of {} do not follow each other", slice.name));
    next = part.end();
    hash_tensor(value, part.value);
    hash_tensor(state, part.main);
  }
  PL_ASSERT_MSG(next == slice.size, fmt::format("parts of {} leave something out", slice.name));
  for (const auto tensor : {&ParamState::exp_avg, &ParamState::exp_avg_sq, &ParamState::momentum_buffer}) {
    for (const RankModel::OwnPart& part : parts) hash_tensor(state, part.state.*tensor);
  }
  state.i64(parts.front().state.step);
  return {value.digest(), state.digest()};
}

ModelDigests digest_of_model(std::vector<RankModel::OwnPart> parts, int parameters) {
  std::sort(parts.begin(), parts.end(), [](const RankModel::OwnPart& a, const RankModel::OwnPart& b) {
    return a.slice->global != b.slice->global ? a.slice->global < b.slice->global : a.begin < b.begin;
  });
  ModelDigest values(parameters), states(parameters);
  for (auto first = parts.begin(); first != parts.end();) {
    const auto end = std::find_if(first, parts.end(), [&](const RankModel::OwnPart& part) {
      return part.slice->global != first->slice->global;
    });
    const ParameterDigests digests = digest_of_parameter({first, end});
    values.set(first->slice->global, digests.value);
    states.set(first->slice->global, digests.state);
    first = end;
  }
  return {values.value(), states.value()};
}

}  // namespace plumbline
