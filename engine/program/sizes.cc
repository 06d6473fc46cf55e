// Sizes from the configuration alone, for checks of a schedule without a model.
//
// Activation memory of a transformer layer: Korthikanti et al. 2022 ("Reducing Activation Recomputation in
// Large Transformer Models"), equation 1: s b h (34 + 5 a s / h) bytes with 2-byte elements; with 4-byte
// elements the two mask bytes stay, the rest doubles. Parameters of a layer: 12 h^2 + 13 h with a
// feed-forward of 4 h.
#include <algorithm>
#include <utility>

#include "engine/program/lower.h"

namespace plumbline {
namespace {

constexpr Bytes kMainGradElement = 4;

// Tensors of a transformer layer: norm, attention in and out, norm, feed-forward in and out; each with its bias.
void add_layer(std::int64_t h, std::int64_t ffn, std::vector<ParamSize>& tensors) {
  for (const std::int64_t elements : {h, h, 3 * h * h, 3 * h, h * h, h, h, h, h * ffn, ffn, h * ffn, h})
    tensors.push_back({elements, false});
}

Bytes main_grads_of(const std::vector<ParamSize>& tensors) {
  Bytes bytes = 0;
  for (const ParamSize& tensor : tensors) bytes += tensor.numel * kMainGradElement;
  return bytes;
}

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
  for (int stage = 0; stage < stages; ++stage) {
    // Layers are dealt out evenly; where they do not divide (only a check may ask), earlier stages get one more.
    const Bytes layers = model.layers / stages + (stage < model.layers % stages ? 1 : 0);
    sizes.stash.push_back(config.memory.stash > 0 ? config.memory.stash
                                                  : std::max<Bytes>(1, layers * layer_stash));
    std::vector<ParamSize> tensors;
    if (stage == 0) {
      tensors.push_back({model.vocab * h, true});
      tensors.push_back({s * h, false});
    }
    for (Bytes layer = 0; layer < layers; ++layer) add_layer(h, ffn, tensors);
    if (stage == stages - 1) {
      tensors.push_back({h, false});
      tensors.push_back({h, false});
      tensors.push_back({model.vocab * h, true});
    }
    sizes.grads.push_back(main_grads_of(tensors));
    sizes.tensors.push_back(std::move(tensors));
  }
  sizes.tied_grad = static_cast<Bytes>(model.vocab) * h * kMainGradElement;
  sizes.parameters = 4 + 12 * model.layers;
  return sizes;
}

ParamLayoutOptions param_layout_options(const OptimizerConfig& config, int data_parallel_size,
                                        int pipeline_rank, int chunk) {
  ParamLayoutOptions options;
  options.distributed = config.distributed;
  options.shards = data_parallel_size;
  options.bucket_size =
      config.bucket_size > 0
          ? config.bucket_size
          : default_bucket_size(data_parallel_size, config.overlap_grad_reduce, pipeline_rank, chunk);
  options.pad_busbw = config.pad_buckets;
  return options;
}

}  // namespace plumbline
