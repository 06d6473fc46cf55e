#include "engine/train/reference.h"

#include <cstddef>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/base/hash.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"
#include "engine/optim/adamw.h"
#include "engine/train/digests.h"

namespace plumbline {
namespace {

std::vector<int> all_stages(const RunConfig& config) {
  std::vector<int> all;
  for (int stage = 0; stage < config.stages(); ++stage) all.push_back(stage);
  return all;
}

}  // namespace

std::vector<std::vector<int>> backward_order_of(const Schedule& schedule) {
  std::vector<std::vector<int>> order(static_cast<std::size_t>(schedule.stages));
  for (const Action& action : schedule.actions) {
    if (action.kind == ActionKind::kBackward) order[action.stage].push_back(action.microbatch);
  }
  return order;
}

Result<SequentialReference> SequentialReference::create(const RunConfig& config, const ModelFamily& family,
                                                        const BatchSource& batches,
                                                        std::vector<std::vector<int>> order) {
  std::vector<std::unique_ptr<Stage>> stages;
  std::vector<Stage*> pointers;
  for (const int stage : all_stages(config)) {
    stages.push_back(family.make_stage({stage, config.stages(), &config}));
    pointers.push_back(stages.back().get());
  }
  Result<ModelTable> table = describe_model(pointers, family.sizes(config));
  if (!table) return tl::unexpected(table.error());
  std::vector<ParameterSlice> slices = table->slices(all_stages(config));
  std::vector<float> initial = flat_values(slices, pointers);
  Result<RankOptimizer> optimizer = RankOptimizer::create(config, std::move(slices), std::move(initial));
  if (!optimizer) return tl::unexpected(optimizer.error());
  return SequentialReference(config, batches, std::move(order), std::move(stages), std::move(*table),
                             std::move(*optimizer));
}

SequentialReference::SequentialReference(const RunConfig& config, const BatchSource& batches,
                                         std::vector<std::vector<int>> order,
                                         std::vector<std::unique_ptr<Stage>> stages, ModelTable table,
                                         RankOptimizer optimizer)
    : config_(&config),
      batches_(&batches),
      order_(std::move(order)),
      stages_(std::move(stages)),
      table_(std::move(table)),
      optimizer_(std::move(optimizer)),
      gradients_(optimizer_.size(), 0.0f) {}

SequentialReference::Step SequentialReference::step(std::int64_t consumed, bool overflow) {
  Step out;
  out.scale = optimizer_.scaler().scale();
  const double share = static_cast<double>(config_->schedule.microbatches) * config_->parallel.dp;
  const float factor = static_cast<float>(static_cast<double>(out.scale) / share);
  for (int replica = 0; replica < config_->parallel.dp; ++replica) {
    const std::vector<float> one = replica_gradients(consumed, replica, factor, out.loss);
    for (std::size_t i = 0; i < one.size(); ++i)
      gradients_[i] = replica == 0 ? one[i] : gradients_[i] + one[i];
  }
  out.loss /= config_->parallel.dp;
  update(out, overflow);
  return out;
}

std::vector<float> SequentialReference::replica_gradients(std::int64_t consumed, int replica, float factor,
                                                          double& loss) {
  const std::size_t count = stages_.size();
  const std::size_t microbatches = static_cast<std::size_t>(config_->schedule.microbatches);
  std::vector<std::vector<at::Tensor>> inputs(count, std::vector<at::Tensor>(microbatches));
  std::vector<std::vector<at::Tensor>> outputs = inputs;
  double total = 0.0;
  for (std::size_t m = 0; m < microbatches; ++m) {
    const Batch batch = batches_->training(consumed, replica, static_cast<int>(m));
    for (std::size_t s = 0; s < count; ++s) {
      if (s > 0) inputs[s][m] = outputs[s - 1][m].detach().clone().requires_grad_(true);
      outputs[s][m] = stages_[s]->forward(inputs[s][m], batch);
    }
    total += static_cast<double>(outputs[count - 1][m].item<float>());
  }
  loss += total / static_cast<double>(microbatches);
  std::vector<float> sums(gradients_.size(), 0.0f);
  for (std::size_t s = count; s-- > 0;) {
    for (const int m : order_[s]) {
      const std::size_t at = static_cast<std::size_t>(m);
      const at::Tensor gradient = s + 1 == count ? at::full({}, factor, at::TensorOptions().dtype(at::kFloat))
                                                 : inputs[s + 1][at].grad();
      torch::autograd::backward({outputs[s][at]}, {gradient});
      add_leaves(static_cast<int>(s), sums);
    }
  }
  return sums;
}

void SequentialReference::add_leaves(int stage, std::vector<float>& sums) {
  for (const ParameterSlice& slice : optimizer_.slices()) {
    if (slice.stage != stage) continue;
    at::Tensor& value =
        stages_[static_cast<std::size_t>(stage)]->parameters()[static_cast<std::size_t>(slice.index)].value;
    if (!value.grad().defined()) continue;
    const at::Tensor wide = value.grad().to(at::kFloat).contiguous();
    for (std::size_t i = 0; i < slice.size; ++i) sums[slice.offset + i] += wide.data_ptr<float>()[i];
    value.mutable_grad().reset();
  }
}

void SequentialReference::update(Step& step, bool overflow) {
  const ParameterSlice* first = nullptr;
  const ParameterSlice* last = nullptr;
  for (const ParameterSlice& slice : optimizer_.slices()) {
    if (slice.tied) (slice.counted ? first : last) = &slice;
  }
  for (std::size_t i = 0; first != nullptr && i < first->size; ++i) {
    const float sum = gradients_[first->offset + i] + gradients_[last->offset + i];
    gradients_[first->offset + i] = gradients_[last->offset + i] = sum;
  }
  if (optimizer_.scaler().checks())
    step.found_inf = !scale_and_check(gradients_, optimizer_.scaler().inverse()) || overflow;
  step.lr = optimizer_.lr();
  if (step.found_inf) return optimizer_.skip();
  std::vector<double> sums(static_cast<std::size_t>(table_.parameters), 0.0);
  optimizer_.norm_sums(gradients_, sums);
  step.norm = optimizer_.step(gradients_, sums).norm;
  for (const ParameterSlice& slice : optimizer_.slices()) {
    const at::Tensor& value = stages_[static_cast<std::size_t>(slice.stage)]
                                  ->parameters()[static_cast<std::size_t>(slice.index)]
                                  .value;
    narrow(optimizer_.main().data() + slice.offset, dtype_of(value.scalar_type()), value.data_ptr(),
           slice.size);
  }
}

std::span<const float> SequentialReference::gradients(int stage) const {
  std::size_t begin = 0, end = 0;
  for (const ParameterSlice& slice : optimizer_.slices()) {
    if (slice.stage < stage) begin = slice.offset + slice.size;
    if (slice.stage <= stage) end = slice.offset + slice.size;
  }
  return std::span<const float>(gradients_).subspan(begin, end - begin);
}

std::uint64_t SequentialReference::params_digest() const {
  ModelDigest digest(table_.parameters);
  for (const ParameterSlice& slice : optimizer_.slices()) {
    if (!slice.counted) continue;
    const at::Tensor& value = stages_[static_cast<std::size_t>(slice.stage)]
                                  ->parameters()[static_cast<std::size_t>(slice.index)]
                                  .value;
    Hasher hasher;
    hasher.text(slice.name);
    hasher.bytes(value.data_ptr(), value.nbytes());
    digest.set(slice.global, hasher.digest());
  }
  return digest.value();
}

std::uint64_t SequentialReference::optimizer_digest() const {
  ModelDigest digest(table_.parameters);
  for (const ParameterSlice& slice : optimizer_.slices()) {
    if (slice.counted) digest.set(slice.global, optimizer_.state_digest(slice));
  }
  return digest.value();
}

}  // namespace plumbline
