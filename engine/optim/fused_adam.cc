#include "engine/optim/fused_adam.h"

#include <algorithm>
#include <utility>

namespace plumbline {
namespace {

std::unique_ptr<BaseOptimizer> make_cpu(std::vector<ParamGroup> groups, BaseOptimizerOptions options) {
  return std::make_unique<BaseOptimizer>(std::move(groups), options);
}

// A function's static, so that registrations from other files' static objects find it made.
std::vector<std::unique_ptr<FusedAdamClass>>& registry() {
  static std::vector<std::unique_ptr<FusedAdamClass>> entries = [] {
    std::vector<std::unique_ptr<FusedAdamClass>> made;
    made.push_back(std::make_unique<FusedAdamClass>(
        FusedAdamClass{"plumbline CPU kernels", c10::DeviceType::CPU, make_cpu}));
    return made;
  }();
  return entries;
}

}  // namespace

const FusedAdamClass* get_fused_adam_class(c10::DeviceType device) {
  const auto& entries = registry();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if ((*entry)->device == device) return entry->get();
  }
  return nullptr;
}

RegisterFusedAdam::RegisterFusedAdam(FusedAdamClass entry) {
  registry().push_back(std::make_unique<FusedAdamClass>(std::move(entry)));
  entry_ = registry().back().get();
}

RegisterFusedAdam::~RegisterFusedAdam() {
  std::erase_if(registry(), [this](const auto& one) { return one.get() == entry_; });
}

std::unique_ptr<BaseOptimizer> make_base_optimizer(std::vector<ParamGroup> groups,
                                                   const BaseOptimizerOptions& options,
                                                   c10::DeviceType device) {
  const FusedAdamClass* fused =
      options.rule == BaseOptimizerOptions::Rule::kAdam ? get_fused_adam_class(device) : nullptr;
  if (fused != nullptr) return fused->make(std::move(groups), options);
  return std::make_unique<BaseOptimizer>(std::move(groups), options);
}

}  // namespace plumbline
