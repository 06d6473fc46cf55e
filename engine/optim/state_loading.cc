#include "engine/optim/state_loading.h"

#include <algorithm>
#include <string>

#include <ATen/ATen.h>

#include "engine/optim/chained_optimizer.h"
#include "engine/optim/wrapper_optimizer.h"

namespace plumbline {
namespace {

bool is_fp32(const StateValue& value) {
  const auto* tensor = value.get<at::Tensor>();
  return tensor != nullptr && tensor->defined() && tensor->scalar_type() == at::kFloat;
}

bool is_number(const StateValue& value) {
  if (value.get<std::int64_t>() != nullptr || value.get<double>() != nullptr) return true;
  const auto* tensor = value.get<at::Tensor>();
  return tensor != nullptr && tensor->defined() && tensor->numel() == 1;
}

bool fp32_adam_entry(const StateDict& one) {
  std::size_t moments = 0;
  for (const auto& [key, value] : one) {
    if (key == "step" && is_number(value)) continue;
    if ((key != "exp_avg" && key != "exp_avg_sq") || !is_fp32(value)) return false;
    ++moments;
  }
  return moments == 2;
}

// The plain class: a derived one (HybridDeviceOptimizer) keeps copies of its own beside the states.
bool eligible(BaseOptimizer& inner) {
  const BaseOptimizerOptions& options = inner.options();
  if (typeid(inner) != typeid(BaseOptimizer) || options.rule != BaseOptimizerOptions::Rule::kAdam ||
      options.precision_aware || options.exp_avg_type != DType::kF32 ||
      options.exp_avg_sq_type != DType::kF32)
    return false;
  const std::vector<ParameterPtr> parameters = inner.parameters();
  return !parameters.empty() &&
         std::all_of(parameters.begin(), parameters.end(), [](const ParameterPtr& parameter) {
           return parameter->value.scalar_type() == at::kFloat;
         });
}

void collect(MegatronOptimizer& optimizer, std::vector<BaseOptimizer*>& found) {
  if (auto* chain = dynamic_cast<ChainedOptimizer*>(&optimizer)) {
    for (const auto& member : chain->chained_optimizers()) collect(*member, found);
    return;
  }
  auto* wrapper = dynamic_cast<WrapperOptimizer*>(&optimizer);
  if (wrapper == nullptr || wrapper->offloaded()) return;
  BaseOptimizer& inner = wrapper->inner();
  if (!inner.adopts_loaded_tensors() && eligible(inner)) found.push_back(&inner);
}

}  // namespace

bool optimizer_state_is_fp32_adam(const StateDict& state) {
  const StateValue* value = state.find("state");
  const auto* states = value == nullptr ? nullptr : value->get<StateDict>();
  if (states == nullptr || states->empty()) return false;
  return std::all_of(states->begin(), states->end(), [](const StateDict::Entry& entry) {
    const auto* one = entry.second.get<StateDict>();
    return one != nullptr && fp32_adam_entry(*one);
  });
}

MemoryEfficientLoading::MemoryEfficientLoading(MegatronOptimizer* optimizer) {
  if (optimizer != nullptr) collect(*optimizer, changed_);
  for (BaseOptimizer* inner : changed_) inner->adopt_loaded_tensors(true);
}

MemoryEfficientLoading::~MemoryEfficientLoading() {
  for (BaseOptimizer* inner : changed_) inner->adopt_loaded_tensors(false);
}

}  // namespace plumbline
