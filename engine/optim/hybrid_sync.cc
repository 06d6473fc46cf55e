#include "engine/optim/hybrid_sync.h"

#include "engine/optim/chained_optimizer.h"
#include "engine/optim/hybrid_device_optimizer.h"
#include "engine/optim/wrapper_optimizer.h"

namespace plumbline {
namespace {

Result<bool> sync(MegatronOptimizer& optimizer) {
  if (auto* chain = dynamic_cast<ChainedOptimizer*>(&optimizer)) {
    bool any = false;
    for (const auto& member : chain->chained_optimizers()) {
      const Result<bool> did = sync(*member);
      if (!did) return did;
      any = any || *did;
    }
    return any;
  }
  auto* wrapper = dynamic_cast<WrapperOptimizer*>(&optimizer);
  auto* hybrid = wrapper == nullptr ? nullptr : dynamic_cast<HybridDeviceOptimizer*>(&wrapper->inner());
  if (hybrid == nullptr || wrapper->is_stub()) return false;
  PL_TRY(wrapper->reload_model_params());
  hybrid->update_fp32_params_from_model();
  return true;
}

}  // namespace

Result<bool> sync_hybrid_device_optimizer_fp32_master_copies(MegatronOptimizer* optimizer, Loaded loaded) {
  if (optimizer == nullptr || loaded == Loaded::kWeightsAndOptimizer) return false;
  return sync(*optimizer);
}

}  // namespace plumbline
