// Data-parallel ranks for tests of the distributed optimizer, and the replicated optimizer they must equal.
//
// A Cluster's ranks are driven in lockstep on one thread: the test does what a Program does, reductions between the
// optimizers' phases. Everything is a function of the case, gradients too.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "engine/base/rng.h"
#include "engine/model/tensors.h"
#include "engine/optim/distributed_optimizer.h"
#include "engine/optim/float16_optimizer.h"
#include "engine/optim/fp32_optimizer.h"
#include "engine/optim/hybrid_device_optimizer.h"
#include "engine/runtime/reduce.h"

namespace plumbline::test::distributed {

// A value that is put into one gradient.
struct Injection {
  int step = 0, rank = 0, param = 0;
  std::int64_t element = 0;
  float value = std::numeric_limits<float>::infinity();
};

struct Case {
  at::ScalarType type = at::kHalf;  // of the model
  int dp = 2;
  std::int64_t bucket_size = 0;
  std::vector<std::int64_t> sizes{37, 130, 5};
  int shared_embedding = -1;  // parameter that gets a bucket of its own
  int groups = 1;             // parameter i is in group i modulo groups
  double clip = 1.0;
  bool grad_reduce_in_fp32 = true;
  BaseOptimizerOptions rule;
  double momentum = 0.0;
  double lr = 1e-2;
  double loss_scale = 0.0;  // initial scale of a dynamic scaler; 0: none
  bool log_num_zeros = false;
  DType main_params = DType::kF32;  // with precision-aware states
  double offload_fraction = -1.0;   // of a HybridDeviceOptimizer; below 0: none
  std::vector<Injection> injections;

  double gradient_scale() const { return 1.0 / dp; }
};

// Drawn by name, so that a shrunk case can be read.
inline DType draw_type(const std::string& what, std::vector<std::string> names) {
  return *dtype_from_name(*rc::gen::elementOf(std::move(names)).as(what));
}

inline std::string param_name(int index) { return "layers." + std::to_string(index) + ".w"; }

inline std::vector<ParameterPtr> model_of(const Case& c) {
  std::vector<ParameterPtr> params;
  for (int i = 0; i < static_cast<int>(c.sizes.size()); ++i) {
    auto made = std::make_shared<Parameter>();
    made->name = param_name(i);
    made->shared_embedding = i == c.shared_embedding;
    at::Tensor value = at::empty({c.sizes[static_cast<std::size_t>(i)]}, at::kFloat);
    const CounterRng rng(3, made->name);
    for (std::int64_t e = 0; e < value.numel(); ++e) {
      value.data_ptr<float>()[e] = static_cast<float>(rng.normal(static_cast<std::uint64_t>(e)));
    }
    made->value = value.to(c.type);
    params.push_back(std::move(made));
  }
  return params;
}

inline std::vector<ParamGroup> groups_of(const Case& c, const std::vector<ParameterPtr>& params) {
  std::vector<ParamGroup> groups(static_cast<std::size_t>(c.groups));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].lr = c.lr / static_cast<double>(g + 1);
    groups[g].weight_decay = g == 0 ? 0.1 : 0.0;
    groups[g].wd_mult = g == 0 ? 1.0 : 0.0;
    groups[g].lr_mult = static_cast<double>(g);  // an identity of its own
    groups[g].momentum = c.momentum;
  }
  for (std::size_t i = 0; i < params.size(); ++i) groups[i % groups.size()].params.push_back(params[i]);
  return groups;
}

inline LossScaler scaler_of(const Case& c) {
  if (c.loss_scale == 0.0) return {};
  LossScaler::Dynamic options;
  options.initial = c.loss_scale;
  options.window = 3;
  options.hysteresis = 1;
  return *LossScaler::dynamic(options);
}

// One rank's autograd gradient, in the model's precision.
inline at::Tensor gradient_of(const Case& c, int step, int rank, int param) {
  at::Tensor out = at::empty({c.sizes[static_cast<std::size_t>(param)]}, at::kFloat);
  const CounterRng rng(11,
                       "g" + std::to_string(step) + "." + std::to_string(rank) + "." + std::to_string(param));
  for (std::int64_t e = 0; e < out.numel(); ++e) {
    const auto index = static_cast<std::uint64_t>(e);
    const double draw = rng.normal(index);
    out.data_ptr<float>()[e] = rng.below(index + (1u << 20), 8) == 0 ? 0.0f : static_cast<float>(draw);
  }
  for (const Injection& injection : c.injections) {
    if (injection.step == step && injection.rank == rank && injection.param == param &&
        injection.element < out.numel()) {
      out.data_ptr<float>()[injection.element] = injection.value;
    }
  }
  return out.to(c.type);
}

inline void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().text());
}
template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text());
  return std::move(*result);
}

inline MegatronOptimizerOptions options_of(const Case& c, int rank = 0) {
  MegatronOptimizerOptions options;
  options.clip_grad = c.clip;
  options.log_num_zeros = c.log_num_zeros;
  options.rank = rank;
  return options;
}

inline std::unique_ptr<BaseOptimizer> base_of(const Case& c, const std::vector<ParameterPtr>& params) {
  if (c.offload_fraction >= 0.0) {
    HybridDeviceOptions hybrid;
    hybrid.offload_fraction = c.offload_fraction;
    return must(HybridDeviceOptimizer::create(groups_of(c, params), c.rule, hybrid));
  }
  return std::make_unique<BaseOptimizer>(groups_of(c, params), c.rule);
}

struct Rank {
  std::vector<ParameterPtr> params;
  std::vector<std::shared_ptr<GradBuffer>> buffers;
  std::unique_ptr<DistributedOptimizer> optimizer;

  void zero() {
    for (const auto& buffer : buffers) buffer->zero();
    optimizer->zero_grad();
  }
  void backward(const Case& c, int step, int rank) {
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      must(accumulate_main_grad(*params[static_cast<std::size_t>(p)], gradient_of(c, step, rank, p)));
    }
  }
};

inline Rank make_rank(const Case& c, int rank, std::shared_ptr<Collective> dp = nullptr) {
  Rank made;
  made.params = model_of(c);
  GradBufferOptions buffer;
  buffer.layout.shards = c.dp;
  buffer.layout.bucket_size = c.bucket_size;
  buffer.shard = rank;
  buffer.grad_reduce_in_fp32 = c.grad_reduce_in_fp32;
  buffer.rank = rank;
  if (!made.params.empty()) made.buffers = must(make_grad_buffers(made.params, buffer, buffer));
  MegatronOptimizerOptions options = options_of(c, rank);
  options.grad_stats = dp;
  made.optimizer = must(DistributedOptimizer::create(
      base_of(c, made.params), std::move(options), scaler_of(c),
      {made.buffers, dp, static_cast<float>(c.gradient_scale()), c.main_params}));
  return made;
}

// What step() returns, but for a whole cluster.
struct Cluster {
  Case c;
  std::vector<Rank> ranks;
  // A part is added up as it travels round the ring to its owner: from the rank after it, its own last. Otherwise
  // in rank order, as plumbline's reductions are.
  bool ring_order = false;

  explicit Cluster(const Case& drawn) : c(drawn) {
    for (int rank = 0; rank < c.dp; ++rank) ranks.push_back(make_rank(c, rank));
  }

  std::size_t buffers() const { return ranks.front().buffers.size(); }

  void reduce_scatter() {
    for (std::size_t b = 0; b < buffers(); ++b) {
      for (int bucket = 0; bucket < ranks.front().buffers[b]->buckets(); ++bucket) {
        const GradBuffer& first = *ranks.front().buffers[b];
        const std::int64_t part = first.layout().shard_numel(bucket);
        std::vector<std::byte*> data;
        for (Rank& rank : ranks) {
          rank.buffers[b]->scale(bucket, static_cast<float>(c.gradient_scale()));
          data.push_back(rank.buffers[b]->gradient_bytes(bucket).data());
        }
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          const std::int64_t at = static_cast<std::int64_t>(r) * part * dtype_bytes(first.key().gradient);
          std::vector<const std::byte*> sources;
          for (std::byte* memory : data) sources.push_back(memory + at);
          if (ring_order)
            std::rotate(sources.begin(), sources.begin() + static_cast<int>(r + 1) % c.dp, sources.end());
          reduce_ordered(first.key().gradient, ReduceOp::kSum, sources, data[r] + at,
                         static_cast<std::size_t>(part));
        }
      }
    }
  }

  void all_gather() {
    for (std::size_t b = 0; b < buffers(); ++b) {
      for (int bucket = 0; bucket < ranks.front().buffers[b]->buckets(); ++bucket) {
        const std::size_t part = ranks.front().buffers[b]->parameter_bytes(bucket).size() / ranks.size();
        for (std::size_t from = 0; part > 0 && from < ranks.size(); ++from) {
          for (Rank& to : ranks) {
            std::memmove(to.buffers[b]->parameter_bytes(bucket).data() + from * part,
                         ranks[from].buffers[b]->parameter_bytes(bucket).data() + from * part, part);
          }
        }
      }
    }
  }

  // Zero, backward on every rank, and the whole step.
  StepOutcome train(int step) {
    for (int r = 0; r < c.dp; ++r) {
      ranks[static_cast<std::size_t>(r)].zero();
      ranks[static_cast<std::size_t>(r)].backward(c, step, r);
    }
    reduce_scatter();
    return update();
  }

  StepOutcome update() {
    StepOutcome outcome;
    std::array<std::int64_t, ExactSum::kWords> words{};
    std::int64_t zeros = 0;
    for (Rank& rank : ranks) {
      rank.optimizer->copy_model_grads_to_main_grads();
      outcome.found_inf = must(rank.optimizer->unscale_local()) || outcome.found_inf;
    }
    for (Rank& rank : ranks) rank.optimizer->update_scaler(outcome.found_inf);
    if (outcome.found_inf) return outcome;
    for (Rank& rank : ranks) {
      const auto own = rank.optimizer->norm_local().squares.words();
      for (std::size_t w = 0; w < words.size(); ++w) words[w] += own[w];
      zeros += rank.optimizer->count_zeros_local();
    }
    const double norm = std::sqrt(ExactSum::of(words).value());
    for (Rank& rank : ranks) must(rank.optimizer->step_shard(norm));
    all_gather();
    outcome.grad_norm = norm;
    outcome.num_zeros = zeros;
    outcome.success = true;
    return outcome;
  }
};

// One optimizer with all states, on gradients summed over the ranks in their order.
struct Replicated {
  Case c;
  std::vector<ParameterPtr> params;
  std::unique_ptr<WrapperOptimizer> optimizer;

  explicit Replicated(const Case& drawn) : c(drawn), params(model_of(drawn)) {
    if (c.type == at::kFloat) {
      optimizer = must(FP32Optimizer::create(base_of(c, params), options_of(c)));
    } else {
      optimizer =
          must(Float16OptimizerWithFloat16Params::create(base_of(c, params), options_of(c), scaler_of(c)));
    }
  }

  StepOutcome train(int step) {
    optimizer->zero_grad();
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      Parameter& parameter = *params[static_cast<std::size_t>(p)];
      std::vector<at::Tensor> parts;
      std::vector<const std::byte*> sources;
      for (int r = 0; r < c.dp; ++r) {
        const at::Tensor gradient = gradient_of(c, step, r, p);
        at::Tensor kept = gradient.to(c.grad_reduce_in_fp32 ? at::kFloat : c.type).clone();
        if (c.dp > 1) kept.copy_(kept.to(at::kFloat).mul_(static_cast<float>(c.gradient_scale())));
        parts.push_back(kept);
        sources.push_back(static_cast<const std::byte*>(kept.data_ptr()));
      }
      parameter.main_grad = at::empty_like(parts.front());
      reduce_ordered(dtype_of(parts.front().scalar_type()), ReduceOp::kSum, sources,
                     static_cast<std::byte*>(parameter.main_grad.data_ptr()),
                     static_cast<std::size_t>(parameter.numel()));
    }
    return must(optimizer->step());
  }
};

// Bit for bit, except that a NaN equals a NaN (its bits depend on where in a vector register it is computed).
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  if (x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0) return true;
  const at::Tensor xf = x.to(at::kFloat), yf = y.to(at::kFloat);
  for (std::int64_t i = 0; i < xf.numel(); ++i) {
    const float p = xf.data_ptr<float>()[i], q = yf.data_ptr<float>()[i];
    if (std::isnan(p) != std::isnan(q)) return false;
    if (!std::isnan(p) && std::memcmp(&p, &q, sizeof(p)) != 0) return false;
  }
  return true;
}

// The first difference between a rank and the replicated optimizer: model, main shards, moments, steps, scale.
inline std::string difference(Rank& rank, Replicated& reference) {
  for (std::size_t p = 0; p < rank.params.size(); ++p) {
    if (!same(rank.params[p]->value, reference.params[p]->value)) return "model " + rank.params[p]->name;
  }
  for (const DistributedOptimizer::Shard& shard : rank.optimizer->shards()) {
    ParameterPtr main;
    for (const ParameterPtr& candidate : reference.optimizer->get_parameters()) {
      if (candidate->name == shard.model->name) main = candidate;
    }
    const auto part = [&](const at::Tensor& whole) {
      return whole.detach().view({-1}).narrow(0, shard.range.param_begin, shard.main->numel());
    };
    if (!same(shard.main->value, part(main->value))) return "main copy of " + main->name;
    const ParamState* own = rank.optimizer->find_state(*shard.main);
    const ParamState* whole = reference.optimizer->find_state(*main);
    if ((own == nullptr) != (whole == nullptr)) return "existence of the state of " + main->name;
    if (own == nullptr) continue;
    if (own->step != whole->step && own->exp_avg.defined()) return "step of " + main->name;
    for (at::Tensor ParamState::*tensor :
         {&ParamState::exp_avg, &ParamState::exp_avg_sq, &ParamState::momentum_buffer}) {
      if ((own->*tensor).defined() != (whole->*tensor).defined()) return "kinds of states of " + main->name;
      if ((own->*tensor).defined() && !same(own->*tensor, part(whole->*tensor)))
        return "state of " + main->name;
    }
  }
  const LossScaler *own = rank.optimizer->scaler(), *whole = reference.optimizer->scaler();
  if ((own == nullptr) != (whole == nullptr)) return "existence of a scaler";
  if (own != nullptr && !(*own == *whole)) return "scaler";
  return "";
}

}  // namespace plumbline::test::distributed
