// Memory of a training step, rank by rank and class by class: what its Program holds in its slots, counted in host
// order as the checker counts it, and the parameters and optimizer states that lie beside the slots. Formulas and
// sources: docs/estimate.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/program/model_shape.h"
#include "engine/program/program.h"

namespace plumbline {

enum class MemoryClass : std::uint8_t {
  kWeights,      // parameters in the model's precision
  kGradients,    // fp32 main gradients, the tied embedding's copy
  kOptimizer,    // fp32 main parameters, moments; a snapshot of a speculative step
  kActivations,  // what forwards keep for their backwards, and what is being recomputed
  kBuffers,      // tensors between stages: sent, received, gradients of them; small reductions; logits
};
constexpr int kMemoryClasses = 5;
std::string_view memory_class_name(MemoryClass kind);

struct RankBytes {
  std::array<Bytes, kMemoryClasses> at_peak{};  // by class, at the moment of the peak
  Bytes peak = 0;                               // their sum
  Bytes rebuilt = 0;                            // of the activations then, what was built again
  std::int64_t peak_item = -1;                  // index into Program::items; -1: what is there all the time
  std::string peak_text;                        // "F of stage 2, microbatch 5"

  Bytes of(MemoryClass kind) const { return at_peak[static_cast<std::size_t>(kind)]; }
};

// Slots of every rank of a Program, one entry a rank. Persistent slots count all the time.
std::vector<RankBytes> slot_memory(const Program& program);

struct MemoryEstimate {
  std::string schedule;
  std::vector<RankBytes> ranks;  // of the first replica, by pipeline rank
  std::int64_t parameters = 0;   // of the whole model
  int largest = 0;               // rank with the highest peak
};

// Of the schedule that a valid configuration names, for a model of this shape. The shape's tensor, context and expert
// parallel shares count; the Program itself is lowered without them, which changes none of its calls.
Result<MemoryEstimate> estimate_memory(const RunConfig& config, const ModelShape& shape);

// Bytes of parameters and of optimizer states beside the slots, of one rank that holds `elements` parameters
// (`sharded`: the part of them whose states it keeps).
Bytes weight_bytes(const RunConfig& config, std::int64_t elements);
Bytes optimizer_bytes(const RunConfig& config, std::int64_t sharded);

}  // namespace plumbline
