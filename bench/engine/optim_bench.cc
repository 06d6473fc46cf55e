// The optimizer's two passes over memory, beside what bounds them and what they replace. Rounds of three
// alternate in one process, so that a noisy machine disturbs all alike:
//   copy    memcpy of as many bytes as the pass reads and writes together: the roofline
//   fused   plumbline's kernels, one pass
//   torch   LibTorch's multi-tensor operations for the same work, one compute thread
// `share` is the copy's time over the fused pass's, `speedup` LibTorch's time over it; medians of the rounds'
// quotients. 16 Mi parameters in 64 tensors, beyond every cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include "engine/optim/kernels.h"
#include "engine/optim/tensor_ops.h"

namespace plumbline {
namespace {

constexpr int kRounds = 21;
constexpr std::int64_t kTensors = 64;
constexpr std::int64_t kElements = (std::int64_t{1} << 24) / kTensors;  // of one tensor
constexpr double kTotal = static_cast<double>(kTensors * kElements);

using Tensors = std::vector<at::Tensor>;

// Processor time of this thread: the same as wall time on an idle machine, and still a measure on a busy one.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double time_of(const std::function<void()>& work) {
  const double start = seconds();
  work();
  return seconds() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Tensors random_tensors(double size) {
  Tensors list;
  for (std::int64_t i = 0; i < kTensors; ++i) list.push_back(at::randn({kElements}).mul_(size));
  return list;
}

Tensors zero_tensors(at::ScalarType type = at::kFloat) {
  Tensors list;
  for (std::int64_t i = 0; i < kTensors; ++i) list.push_back(at::zeros({kElements}, type));
  return list;
}

Tensors clones(const Tensors& list) {
  Tensors out;
  for (const at::Tensor& one : list) out.push_back(one.clone());
  return out;
}

// Copies `bytes` back and forth between two buffers: reads them and writes them.
class Copy {
 public:
  explicit Copy(double bytes) : from_(static_cast<std::size_t>(bytes), 1), to_(from_) {}
  void operator()() {
    std::memcpy(to_.data(), from_.data(), from_.size());
    benchmark::ClobberMemory();
    std::swap(from_, to_);
  }

 private:
  std::vector<char> from_, to_;
};

// `moved`: bytes read and written by one pass.
void alternate(benchmark::State& state, double moved, const std::function<void()>& fused,
               const std::function<void()>& torch) {
  Copy copy(moved / 2);
  std::vector<double> copies, fuseds, torches, shares, speedups;
  for (auto _ : state) {
    for (int round = -1; round < kRounds; ++round) {
      const double c = time_of([&] { copy(); });
      const double f = time_of(fused);
      const double t = time_of(torch);
      if (round < 0) continue;  // first touch of memory
      copies.push_back(c);
      fuseds.push_back(f);
      torches.push_back(t);
      shares.push_back(c / f);
      speedups.push_back(t / f);
    }
  }
  const auto best = [](const std::vector<double>& times) {
    return *std::min_element(times.begin(), times.end());
  };
  state.counters["copy_GB/s"] = moved / best(copies) / 1e9;
  state.counters["best_GB/s"] = moved / best(fuseds) / 1e9;
  state.counters["median_GB/s"] = moved / median(fuseds) / 1e9;
  state.counters["best_share"] = best(copies) / best(fuseds);
  state.counters["share"] = median(shares);
  state.counters["best_speedup"] = best(torches) / best(fuseds);
  state.counters["speedup"] = median(speedups);
}

// Reads and writes every gradient once.
void unscale_check_norm(benchmark::State& state) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const Tensors ours = random_tensors(1.0), theirs = clones(ours);
  float factor = 2.0f;
  double norm = 0.0, torch_norm = 0.0;
  bool found = false, torch_found = false;
  alternate(
      state, 8.0 * kTotal,
      [&] {
        factor = 1.0f / factor;
        ExactSum sum;
        found = unscale_and_check(ours, factor, &sum);
        norm = std::sqrt(sum.value());
      },
      [&] {
        torch_found = false;
        for (const at::Tensor& one : theirs) torch_found |= !at::isfinite(one).all().item<bool>();
        at::_foreach_mul_(theirs, static_cast<double>(factor));
        torch_norm = at::stack(at::_foreach_norm(theirs, 2)).norm().item<double>();
      });
  if (found || torch_found || std::fabs(norm - torch_norm) > 1e-4 * norm)
    state.SkipWithError("results differ");
}
BENCHMARK(unscale_check_norm)->Iterations(1)->Unit(benchmark::kMillisecond);

struct States {
  Tensors gradient, parameter, first, second, model;
};

// torch.optim.AdamW's foreach sequence, with clipping in place before and the copy to the model after, as apex's
// and Megatron's steps are made up.
void torch_step(States& s, const kernels::AdamUpdate& u) {
  const double correct1 = 1.0 - std::pow(u.beta1, static_cast<double>(u.step));
  const double correct2 = 1.0 - std::pow(u.beta2, static_cast<double>(u.step));
  at::_foreach_mul_(s.gradient, static_cast<double>(u.gradient_factor));
  at::_foreach_mul_(s.parameter, 1.0 - u.lr * u.weight_decay);
  at::_foreach_mul_(s.first, u.beta1);
  at::_foreach_add_(s.first, s.gradient, 1.0 - u.beta1);
  at::_foreach_mul_(s.second, u.beta2);
  at::_foreach_addcmul_(s.second, s.gradient, s.gradient, 1.0 - u.beta2);
  Tensors root = at::_foreach_sqrt(s.second);
  at::_foreach_div_(root, std::sqrt(correct2));
  at::_foreach_add_(root, u.eps);
  at::_foreach_addcdiv_(s.parameter, s.first, root, -u.lr / correct1);
  for (std::size_t i = 0; i < s.model.size(); ++i) s.model[i].copy_(s.parameter[i]);
}

void fused_step(States& s, const kernels::AdamUpdate& u, DType model) {
  for (std::size_t i = 0; i < s.parameter.size(); ++i) {
    kernels::AdamArrays arrays;
    arrays.count = static_cast<std::size_t>(s.parameter[i].numel());
    arrays.gradient = s.gradient[i].data_ptr();
    arrays.parameter = s.parameter[i].data_ptr();
    arrays.first = s.first[i].data_ptr();
    arrays.second = s.second[i].data_ptr();
    arrays.model = s.model[i].data_ptr();
    arrays.model_type = model;
    kernels::adam(u, arrays);
  }
}

// Reads gradient, parameter and two moments, writes the last three and the model's copy: 16 + 14 bytes.
void clip_adam_copy(benchmark::State& state, DType model) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const at::ScalarType type = model == DType::kF16 ? at::kHalf : at::kBFloat16;
  States ours{random_tensors(1.0), random_tensors(0.02), zero_tensors(), zero_tensors(), zero_tensors(type)};
  States theirs{clones(ours.gradient), clones(ours.parameter), zero_tensors(), zero_tensors(),
                zero_tensors(type)};
  kernels::AdamUpdate update;
  update.lr = 1e-4;
  update.weight_decay = 0.01;
  update.gradient_factor = 1.0f - 0x1p-20f;  // LibTorch clips in place, again and again
  kernels::AdamUpdate torch_update = update;
  alternate(
      state, 30.0 * kTotal,
      [&] {
        fused_step(ours, update, model);
        ++update.step;
      },
      [&] {
        torch_step(theirs, torch_update);
        ++torch_update.step;
      });
  for (std::size_t i = 0; i < ours.model.size(); ++i) {
    if (!at::allclose(ours.parameter[i], theirs.parameter[i], 1e-4, 1e-5) ||
        !at::equal(ours.model[i], ours.parameter[i].to(type))) {
      return state.SkipWithError("results differ");
    }
  }
}
BENCHMARK_CAPTURE(clip_adam_copy, f16, DType::kF16)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(clip_adam_copy, bf16, DType::kBF16)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline
