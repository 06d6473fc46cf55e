// After a checkpoint's weights were loaded into a model whose optimizer keeps its fp32 copies elsewhere
// (cpu_offload): the copies must become the loaded weights, or the first step writes the random initial values
// back (Megatron-Bridge's sync_hybrid_device_optimizer_fp32_master_copies).
//
// Upstream calls its helper after every load, so a full resume loses the bits of the fp32 masters below the model's
// precision. Here the caller says what was loaded, and masters that came with the checkpoint are left alone.
#pragma once

#include <cstdint>

#include "engine/optim/megatron_optimizer.h"

namespace plumbline {

enum class Loaded : std::uint8_t {
  kWeightsOnly,          // finetuning, no-load-optim, a converted model
  kWeightsAndOptimizer,  // a full resume
};

// Refreshes, for every optimizer on a HybridDeviceOptimizer: main parameters from the model, then the fp32 working
// copies from them. Whether it did anything: false for a full resume, without offload, and for null. An error is a
// member's (offloaded to the CPU as a whole), and names it.
Result<bool> sync_hybrid_device_optimizer_fp32_master_copies(MegatronOptimizer* optimizer, Loaded loaded);

}  // namespace plumbline
