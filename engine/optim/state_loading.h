// Loading the states of fp32 Adam without a second copy (Megatron-Bridge's
// memory_efficient_fp32_optimizer_state_loading). A load normally copies: the saved moments and the optimizer's
// are in memory at one time, 8 bytes a parameter each. Inside the scope, optimizers whose state needs no
// conversion take the loaded tensors over instead.
//
//   {
//     MemoryEfficientLoading scope(optimizer);
//     PL_TRY(optimizer->load_state_dict(std::move(state)));
//   }  // as before
//
// Eligible: Adam with fp32 moments over fp32 parameters (main copies are), not precision-aware, not offloaded and
// not on a HybridDeviceOptimizer. Sharded loads write into the live tensors anyway and do not need it.
#pragma once

#include <vector>

#include "engine/optim/megatron_optimizer.h"

namespace plumbline {

// Whether a base optimizer's dictionary {"state": {...}, ...} holds nothing but fp32 exp_avg and exp_avg_sq (and
// step, a number) for each parameter, and at least one parameter.
bool optimizer_state_is_fp32_adam(const StateDict& state);

class MemoryEfficientLoading {
 public:
  // Null: nothing to change. The optimizer outlives the scope.
  explicit MemoryEfficientLoading(MegatronOptimizer* optimizer);
  ~MemoryEfficientLoading();  // every changed optimizer loads as it did before, also after an error
  MemoryEfficientLoading(const MemoryEfficientLoading&) = delete;
  MemoryEfficientLoading& operator=(const MemoryEfficientLoading&) = delete;

  int changed() const { return static_cast<int>(changed_.size()); }

 private:
  std::vector<BaseOptimizer*> changed_;
};

}  // namespace plumbline
