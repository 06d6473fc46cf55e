// Fused Adam implementations by device: base optimizers whose update is one pass over memory. BaseOptimizer is that
// on the CPU; a device backend may register one of its own. Without one the base optimizer's update is a sequence of
// LibTorch operations - same rule, more traffic -, so finding none is no error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <c10/core/DeviceType.h>

#include "engine/optim/base_optimizer.h"

namespace plumbline {

struct FusedAdamClass {
  std::string name;  // for messages and reports
  c10::DeviceType device = c10::DeviceType::CPU;
  std::unique_ptr<BaseOptimizer> (*make)(std::vector<ParamGroup> groups,
                                         BaseOptimizerOptions options) = nullptr;
};

// Null: none is registered for the device. The latest registration wins.
const FusedAdamClass* get_fused_adam_class(c10::DeviceType device);

// From a static object of the backend, before any optimizer is made; removed with the object.
class RegisterFusedAdam {
 public:
  explicit RegisterFusedAdam(FusedAdamClass entry);
  ~RegisterFusedAdam();
  RegisterFusedAdam(const RegisterFusedAdam&) = delete;
  RegisterFusedAdam& operator=(const RegisterFusedAdam&) = delete;

 private:
  const FusedAdamClass* entry_;
};

// The base optimizer for parameters on `device`: the registered class for Adam, BaseOptimizer otherwise.
std::unique_ptr<BaseOptimizer> make_base_optimizer(std::vector<ParamGroup> groups,
                                                   const BaseOptimizerOptions& options,
                                                   c10::DeviceType device);

}  // namespace plumbline
