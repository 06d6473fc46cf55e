// Sizes from the configuration alone, for checks of a schedule without a model.
//
// Activation memory of a transformer layer: Korthikanti et al. 2022 ("Reducing Activation Recomputation in
// Large Transformer Models"), equation 1: s b h (34 + 5 a s / h) bytes with 2-byte elements; with 4-byte
// elements the two mask bytes stay, the rest doubles. Parameters of a layer: 12 h^2 + 13 h with a
// feed-forward of 4 h.
#include <algorithm>

#include "engine/program/lower.h"

namespace plumbline {
namespace {

constexpr Bytes kMainGradElement = 4;

}  // namespace

ModelSizes default_sizes(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const int stages = std::max(1, config.stages());
  ModelSizes sizes;
  sizes.activation_dtype = config.train.precision == Precision::kFp16   ? DType::kF16
                           : config.train.precision == Precision::kBf16 ? DType::kBF16
                                                                        : DType::kF32;
  const Bytes element = dtype_bytes(sizes.activation_dtype);
  const Bytes s = model.seq_length;
  const Bytes b = config.train.micro_batch_size;
  const Bytes h = model.hidden;
  const Bytes ffn = model.ffn_hidden > 0 ? model.ffn_hidden : 4 * h;
  sizes.activation = config.memory.activation > 0 ? config.memory.activation : s * b * h * element;
  const Bytes layer_stash = s * b * h * 34 * element / 2 + 5 * model.heads * s * s * b * element / 2;
  const Bytes layer_parameters = 4 * h * h + 2 * h * ffn + 9 * h + ffn;
  for (int stage = 0; stage < stages; ++stage) {
    // Layers are dealt out evenly; where they do not divide (only a check may ask), earlier stages get one more.
    const Bytes layers = model.layers / stages + (stage < model.layers % stages ? 1 : 0);
    sizes.stash.push_back(config.memory.stash > 0 ? config.memory.stash
                                                  : std::max<Bytes>(1, layers * layer_stash));
    Bytes parameters = layers * layer_parameters;
    if (stage == 0) parameters += (model.vocab + s) * h;
    if (stage == stages - 1) parameters += 2 * h + (stages > 1 ? model.vocab * h : 0);
    sizes.grads.push_back(parameters * kMainGradElement);
  }
  sizes.tied_grad = static_cast<Bytes>(model.vocab) * h * kMainGradElement;
  sizes.parameters = 4 + 12 * model.layers;
  return sizes;
}

}  // namespace plumbline
