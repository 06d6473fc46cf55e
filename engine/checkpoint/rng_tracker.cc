#include "engine/checkpoint/rng_tracker.h"

#include <mutex>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

namespace plumbline {
namespace {

constexpr std::int64_t kCudaState = 16;  // c10's CUDAGeneratorImpl: 8 bytes of seed, 8 of offset

// LibTorch checks sizes itself, by throwing; this is said before.
Status check_state(const std::string& name, const at::Tensor& state) {
  const std::int64_t size = cpu_rng_state().numel();
  if (!state.defined() || state.scalar_type() != at::kByte || state.numel() != size)
    return fail(ErrorCode::kState,
                fmt::format("random state '{}' is {}, a state of the CPU generator is {} bytes", name,
                            describe(StateValue(state)), size));
  return {};
}

}  // namespace

at::Tensor cpu_rng_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state().clone();
}

Status set_cpu_rng_state(const at::Tensor& state) {
  PL_TRY(check_state("torch_rng_state", state));
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  try {
    generator.set_state(state.to(at::kCPU).contiguous());
  } catch (const c10::Error& error) {
    return fail(ErrorCode::kState,
                fmt::format("not a state of the CPU generator: {}", error.what_without_backtrace()));
  }
  return {};
}

Status RngTracker::add(const std::string& name, std::uint64_t seed) {
  if (states_.count(name) != 0)
    return fail(ErrorCode::kState, fmt::format("random state '{}' is there already", name));
  if (!seeds_.insert(seed).second)
    return fail(ErrorCode::kState,
                fmt::format("seed {} of '{}' is another state's; both would draw the same", seed, name));
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  states_[name] = generator.get_state().clone();
  return {};
}

Status RngTracker::fork(const std::string& name, const std::function<void()>& draw) {
  const auto found = states_.find(name);
  if (found == states_.end()) return fail(ErrorCode::kState, fmt::format("no random state '{}'", name));
  if (found->second.numel() == kCudaState)
    return fail(ErrorCode::kUnsupported,
                fmt::format("random state '{}' is of a CUDA generator; the CPU's cannot draw from it", name));
  const at::Tensor outside = cpu_rng_state();
  PL_TRY(set_cpu_rng_state(found->second));
  draw();
  found->second = cpu_rng_state();
  return set_cpu_rng_state(outside);
}

StateDict RngTracker::state_dict() const {
  StateDict state;
  for (const auto& [name, tensor] : states_) state[name] = tensor.clone();
  return state;
}

Status RngTracker::load_state_dict(const StateDict& state) {
  if (state.empty()) return fail(ErrorCode::kState, "no random states in the tracker's dictionary");
  std::map<std::string, at::Tensor> loaded;
  for (const auto& [name, value] : state) {
    const auto* tensor = value.get<at::Tensor>();
    if (tensor == nullptr)
      return fail(ErrorCode::kState, fmt::format("random state '{}' is {}", name, describe(value)));
    const bool cuda =
        tensor->defined() && tensor->scalar_type() == at::kByte && tensor->numel() == kCudaState;
    if (!cuda) PL_TRY(check_state(name, *tensor));
    loaded[name] = tensor->to(at::kCPU).contiguous().clone();
  }
  states_ = std::move(loaded);
  seeds_.clear();  // of loaded states nobody knows the seeds
  return {};
}

}  // namespace plumbline
