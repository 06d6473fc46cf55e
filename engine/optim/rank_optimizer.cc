#include "engine/optim/rank_optimizer.h"

#include <algorithm>
#include <utility>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/optim/adamw.h"

namespace plumbline {

Result<RankOptimizer> RankOptimizer::create(const RunConfig& config, std::vector<ParameterSlice> slices,
                                            std::vector<float> initial) {
  const Result<LossScaler> scaler = LossScaler::of(config.loss_scale, config.train.precision);
  if (!scaler) return tl::unexpected(scaler.error());
  RankOptimizer optimizer;
  optimizer.options_ = config.optimizer;
  optimizer.schedule_ = LrSchedule::of(config.optimizer, config.train.iterations);
  optimizer.scaler_ = *scaler;
  optimizer.slices_ = std::move(slices);
  optimizer.main_ = std::move(initial);
  optimizer.first_.assign(optimizer.main_.size(), 0.0f);
  optimizer.second_.assign(optimizer.main_.size(), 0.0f);
  return optimizer;
}

void RankOptimizer::norm_sums(std::span<const float> gradients, std::span<double> sums) const {
  PL_ASSERT(gradients.size() == main_.size());
  std::fill(sums.begin(), sums.end(), 0.0);
  for (const ParameterSlice& slice : slices_) {
    if (!slice.counted) continue;
    sums[static_cast<std::size_t>(slice.global)] =
        sum_of_squares(gradients.subspan(slice.offset, slice.size));
  }
}

RankOptimizer::Outcome RankOptimizer::step(std::span<const float> gradients, std::span<const double> sums) {
  PL_ASSERT(gradients.size() == main_.size());
  Outcome outcome{norm_of_sums(sums), lr()};
  AdamWUpdate update;
  update.lr = outcome.lr;
  update.beta1 = options_.beta1;
  update.beta2 = options_.beta2;
  update.eps = options_.eps;
  update.step = ++updates_;
  update.gradient_factor = clip_factor(outcome.norm, options_.clip_grad);
  const auto part = [](std::vector<float>& all, const ParameterSlice& slice) {
    return std::span<float>(all).subspan(slice.offset, slice.size);
  };
  for (const ParameterSlice& slice : slices_) {
    update.weight_decay = slice.decayed ? options_.weight_decay : 0.0;
    adamw(update, gradients.subspan(slice.offset, slice.size), part(main_, slice), part(first_, slice),
          part(second_, slice));
  }
  scaler_.update(false);
  return outcome;
}

std::uint64_t RankOptimizer::state_digest(const ParameterSlice& slice) const {
  Hasher hasher;
  hasher.text(slice.name);
  for (const std::vector<float>* values : {&main_, &first_, &second_}) {
    hasher.bytes(values->data() + slice.offset, slice.size * sizeof(float));
  }
  hasher.i64(updates_);
  return hasher.digest();
}

}  // namespace plumbline
