#include "engine/train/reference.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/base/assert.h"
#include "engine/model/slices.h"
#include "engine/optim/tensor_ops.h"

namespace plumbline {
namespace {

std::vector<int> all_stages(const RunConfig& config) {
  std::vector<int> all;
  for (int stage = 0; stage < config.stages(); ++stage) all.push_back(stage);
  return all;
}

}  // namespace

BackwardOrder backward_order_of(const Schedule& schedule) {
  BackwardOrder order(static_cast<std::size_t>(schedule.stages));
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const int stage : schedule.stages_of_rank(rank)) {
      std::vector<int>& copy = order[static_cast<std::size_t>(stage)].emplace_back();
      for (const Action& action : schedule.row(rank)) {
        const bool adds = action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGrad;
        if (adds && action.stage == stage) copy.push_back(action.microbatch);
      }
    }
  }
  return order;
}

Result<SequentialReference> SequentialReference::create(const RunConfig& config, const ModelFamily& family,
                                                        const BatchSource& batches, BackwardOrder order) {
  SequentialReference out;
  out.config_ = &config;
  out.batches_ = &batches;
  out.order_ = std::move(order);
  out.microbatches_ = config.passes();
  RankModel::Parts parts;
  for (const int stage : all_stages(config)) {
    out.stages_.push_back(family.make_stage({stage, config.stages(), &config}));
    parts.stages.push_back(out.stages_.back().get());
  }
  const Result<ModelTable> table = describe_model(parts.stages, family.sizes(config));
  if (!table) return tl::unexpected(table.error());
  out.parameters_ = table->parameters;
  parts.config = &config;
  parts.slices = table->slices(all_stages(config));
  parts.alone = true;
  Result<std::unique_ptr<RankModel>> model = RankModel::create(std::move(parts));
  if (!model) return tl::unexpected(model.error());
  out.model_ = std::move(*model);
  return out;
}

SequentialReference::Step SequentialReference::step(std::int64_t consumed, bool overflow) {
  Step out;
  out.scale = model_->scale();
  const double share = static_cast<double>(microbatches_) * config_->parallel.dp;
  const float factor = static_cast<float>(static_cast<double>(out.scale) / share);
  Sums gradients;
  for (int replica = 0; replica < config_->parallel.dp; ++replica) {
    Sums one = replica_gradients(consumed, replica, factor, out.loss);
    if (replica == 0) {
      gradients = std::move(one);
      continue;
    }
    for (std::size_t s = 0; s < one.size(); ++s) {
      for (std::size_t i = 0; i < one[s].size(); ++i) gradients[s][i] += one[s][i];
    }
  }
  out.loss /= config_->parallel.dp;
  add_tied_uses(gradients);
  update(out, gradients, overflow);
  return out;
}

SequentialReference::Sums SequentialReference::replica_gradients(std::int64_t consumed, int replica,
                                                                 float factor, double& loss) {
  const std::size_t count = stages_.size();
  const std::size_t microbatches = static_cast<std::size_t>(microbatches_);
  std::vector<std::vector<at::Tensor>> inputs(count, std::vector<at::Tensor>(microbatches));
  std::vector<std::vector<at::Tensor>> outputs = inputs;
  double total = 0.0;
  SlicedPasses passes(config_->schedule.slices);
  for (std::size_t m = 0; m < microbatches; ++m) {
    const Batch batch = batches_->training(consumed, replica, static_cast<int>(m));
    for (std::size_t s = 0; s < count; ++s) {
      if (s > 0) inputs[s][m] = outputs[s - 1][m].detach().clone().requires_grad_(true);
      outputs[s][m] =
          passes.forward(*stages_[s], static_cast<int>(s), static_cast<int>(m), inputs[s][m], batch);
    }
    total += static_cast<double>(outputs[count - 1][m].item<float>());
  }
  loss += total / static_cast<double>(microbatches);
  Sums zeros;
  for (const ParameterSlice& slice : model_->slices())
    zeros.emplace_back(static_cast<std::size_t>(slice.size), 0.0f);
  Sums sums = zeros;
  for (std::size_t s = count; s-- > 0;) {
    for (std::size_t copy = 0; copy < order_[s].size(); ++copy) {
      Sums of_copy = copy == 0 ? Sums() : zeros;
      for (const int m : order_[s][copy]) {
        const std::size_t at = static_cast<std::size_t>(m);
        const at::Tensor gradient = s + 1 == count
                                        ? at::full({}, factor, at::TensorOptions().dtype(at::kFloat))
                                        : inputs[s + 1][at].grad();
        std::vector<at::Tensor> roots{outputs[s][at]}, gradients{gradient};
        passes.begin_backward(static_cast<int>(s), m, roots, gradients);
        torch::autograd::backward(roots, gradients);
        add_leaves(static_cast<int>(s), copy == 0 ? sums : of_copy);
      }
      if (copy > 0) add_copy(static_cast<int>(s), sums, of_copy);
    }
  }
  return sums;
}

void SequentialReference::add_copy(int stage, Sums& sums, const Sums& copy) const {
  for (std::size_t s = 0; s < sums.size(); ++s) {
    if (model_->slices()[s].stage != stage) continue;
    for (std::size_t i = 0; i < sums[s].size(); ++i) sums[s][i] += copy[s][i];
  }
}

void SequentialReference::add_leaves(int stage, Sums& sums) {
  for (std::size_t s = 0; s < sums.size(); ++s) {
    const ParameterSlice& slice = model_->slices()[s];
    if (slice.stage != stage) continue;
    at::Tensor& value = model_->parameter(s).value;
    if (!value.grad().defined()) continue;
    const at::Tensor wide = value.grad().to(at::kFloat).contiguous();
    for (std::size_t i = 0; i < sums[s].size(); ++i) sums[s][i] += wide.data_ptr<float>()[i];
    value.mutable_grad().reset();
  }
}

void SequentialReference::add_tied_uses(Sums& sums) const {
  const std::vector<std::size_t> tied = model_->tied_slices();
  if (tied.empty()) return;
  std::vector<float>& first = sums[tied.front()];
  std::vector<float>& last = sums[tied.back()];
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = last[i] = first[i] + last[i];
}

void SequentialReference::update(Step& step, const Sums& gradients, bool overflow) {
  ChainedOptimizer& optimizer = model_->optimizer();
  model_->zero_gradients();
  for (std::size_t s = 0; s < gradients.size(); ++s) {
    at::Tensor& sums = model_->parameter(s).main_grad;
    std::copy(gradients[s].begin(), gradients[s].end(), sums.data_ptr<float>());
  }
  optimizer.copy_model_grads_to_main_grads();
  if (optimizer.scaler() != nullptr) step.found_inf = optimizer.unscale_local().value() || overflow;
  step.lr = model_->lr();
  optimizer.update_scaler(step.found_inf);
  if (step.found_inf) return;
  step.norm = norm_of(optimizer.norm_local());
  if (config_->optimizer.log_num_zeros) step.zeros = optimizer.count_zeros_local();
  const Status updated = optimizer.finish_step(step.norm);
  PL_ASSERT_MSG(updated.has_value(), updated ? "" : updated.error().text());
  model_->scheduler().step(samples_of_step());
}

std::int64_t SequentialReference::samples_of_step() const {
  return std::int64_t{microbatches_} / config_->schedule.slices * config_->parallel.dp *
         config_->train.micro_batch_size;
}

ModelDigests SequentialReference::digests() const {
  std::vector<RankModel::OwnPart> parts = model_->own_parts();
  parts.erase(std::remove_if(parts.begin(), parts.end(),
                             [](const RankModel::OwnPart& part) { return !part.slice->counted; }),
              parts.end());
  return digest_of_model(std::move(parts), parameters_);
}

}  // namespace plumbline
