// Activation memory of a transformer layer: Korthikanti et al. 2022 (arXiv 2205.05198), section 4, in 2-byte
// elements:
//
//   s b h (10 + 24/t + 5 a s / (h t))    tensor parallel of size t
//   s b h / t (34 + 5 a s / h)           and sequence parallel
//
// taken apart, so that widths other than h and 4h have their own terms. With 4-byte elements all of it doubles,
// mask bytes included.
#include "engine/program/model_shape.h"

#include <algorithm>

namespace plumbline {
namespace {

constexpr Bytes kMainGradElement = 4;

// Half bytes would be lost in integers, so everything below is in bytes of 2-byte elements, scaled once.
Bytes scaled(const ModelShape& shape, Bytes two_byte) { return two_byte * shape.element() / 2; }

// Score matrix, its softmax and dropout: 5 a s^2 b.
Bytes scores(const ModelShape& shape) {
  return shape.flash ? 0 : 5 * shape.heads * shape.seq * shape.seq * shape.micro / shape.tp;
}

// What every rank of a tensor-parallel group holds in full unless the sequence is cut: both norms' inputs, the
// inputs of attention and feed-forward, both dropout masks (10 sbh).
Bytes replicated(const ModelShape& shape) {
  const Bytes all = 10 * shape.seq * shape.micro * shape.hidden;
  return shape.sequence_parallel ? all / shape.tp : all;
}

// Queries and the attention's output, keys and values, the feed-forward's first matrix and its activation: 24 sbh /
// t for h and 4h.
Bytes divided(const ModelShape& shape) {
  const Bytes sb = shape.seq * shape.micro;
  const Bytes attention = 2 * shape.query + 4 * shape.kv + 2 * shape.query;
  const Bytes feed_forward = 2 * shape.ffn * (shape.gated ? 2 : 1) + 2 * shape.ffn;
  return sb * (attention + feed_forward) / shape.tp;
}

// The tied embedding has a second tensor.
bool second_use(const ModelShape& shape) {
  return shape.tied && (shape.tied_twice || shape.stages.size() > 1);
}

Bytes ends_stash(const ModelShape& shape, const StageLayers& held) {
  if (!shape.ends) return 0;
  const Bytes sb = shape.seq * shape.micro;
  const Bytes share = shape.sequence_parallel ? shape.tp : 1;
  Bytes bytes = 0;
  if (held.embedding) bytes += 8 * sb + sb * shape.hidden / share;
  if (held.loss) bytes += 2 * scaled(shape, 2 * sb * shape.hidden / share) + 4 * sb * shape.vocab / shape.tp;
  return bytes;
}

void add_layer(const ModelShape& shape, std::vector<ParamSize>& tensors) {
  const std::int64_t h = shape.hidden, t = shape.tp;
  const std::int64_t qkv = (shape.query + 2 * shape.kv) / t;
  const std::int64_t first = shape.ffn * (shape.gated ? 2 : 1) / t;
  const auto norm = [&] {
    tensors.push_back({h, false});
    if (shape.norm_bias) tensors.push_back({h, false});
  };
  const auto linear = [&](std::int64_t weight, std::int64_t bias) {
    tensors.push_back({weight, false});
    if (shape.bias) tensors.push_back({bias, false});
  };
  norm();
  linear(qkv * h, qkv);
  linear(shape.query / t * h, h);
  norm();
  linear(first * h, first);
  linear(shape.ffn / t * h, h);
}

}  // namespace

ModelShape model_shape(const RunConfig& config) {
  const ModelConfig& model = config.model;
  ModelShape shape;
  shape.hidden = shape.query = shape.kv = model.hidden;
  shape.heads = model.heads;
  shape.ffn = model.ffn_hidden > 0 ? model.ffn_hidden : 4 * shape.hidden;
  shape.seq = shape.positions = model.seq_length;
  shape.micro = config.train.micro_batch_size;
  shape.vocab = model.vocab;
  shape.dtype = config.train.precision == Precision::kFp16   ? DType::kF16
                : config.train.precision == Precision::kBf16 ? DType::kBF16
                                                             : DType::kF32;
  const int stages = std::max(1, config.stages());
  for (int stage = 0; stage < stages; ++stage) {
    const int layers = model.layers / stages + (stage < model.layers % stages ? 1 : 0);
    shape.stages.push_back(StageLayers{layers, 0, stage == 0, stage == stages - 1});
  }
  return shape;
}

std::vector<ParamSize> stage_tensors(const ModelShape& shape, int stage) {
  const StageLayers& held = shape.stages[static_cast<std::size_t>(stage)];
  std::vector<ParamSize> tensors;
  const std::int64_t embedding = shape.vocab / shape.tp * shape.hidden;
  if (held.embedding) {
    tensors.push_back({embedding, shape.tied});
    if (shape.positions > 0) tensors.push_back({shape.positions * shape.hidden, false});
  }
  for (int layer = 0; layer < held.layers; ++layer) add_layer(shape, tensors);
  // A multi-token-prediction layer joins two normalized inputs (2h to h) before its layer, and ends with a norm.
  for (int layer = 0; layer < held.mtp; ++layer) {
    for (int norm = 0; norm < (shape.norm_bias ? 6 : 3); ++norm) tensors.push_back({shape.hidden, false});
    tensors.push_back({2 * shape.hidden * shape.hidden / shape.tp, false});
    add_layer(shape, tensors);
  }
  if (held.loss) {
    tensors.push_back({shape.hidden, false});
    if (shape.norm_bias) tensors.push_back({shape.hidden, false});
    if (!shape.tied || shape.tied_twice || !held.embedding) tensors.push_back({embedding, shape.tied});
  }
  return tensors;
}

std::int64_t parameters_of(const ModelShape& shape) {
  ModelShape whole = shape;
  whole.tp = 1;
  std::int64_t all = 0;
  for (std::size_t stage = 0; stage < whole.stages.size(); ++stage)
    for (const ParamSize& tensor : stage_tensors(whole, static_cast<int>(stage))) all += tensor.numel;
  if (second_use(whole)) all -= whole.vocab * whole.hidden;
  return all;
}

Bytes layer_activation(const ModelShape& shape) {
  const Bytes core = shape.recompute == Recompute::kSelective ? 0 : scores(shape);
  return scaled(shape, replicated(shape) + divided(shape) + core);
}

Bytes boundary_activation(const ModelShape& shape) {
  const Bytes all = shape.seq * shape.micro * shape.hidden * shape.element();
  return shape.sequence_parallel ? all / shape.tp : all;
}

Bytes stage_stash(const ModelShape& shape, int stage) {
  const StageLayers& held = shape.stages[static_cast<std::size_t>(stage)];
  const Bytes layers = held.layers + held.mtp;
  const Bytes each = layer_activation(shape);
  const Bytes ends = ends_stash(shape, held);
  if (shape.recompute != Recompute::kFull) return std::max<Bytes>(1, layers * each + ends);
  const Bytes group = std::max(1, shape.recompute_layers);
  const Bytes input = boundary_activation(shape);
  if (shape.method == RecomputeMethod::kUniform)
    return std::max<Bytes>(1, (layers + group - 1) / group * input + ends);
  const Bytes again = std::min(layers, group);
  return std::max<Bytes>(1, again * input + (layers - again) * each + ends);
}

Bytes recompute_buffer(const ModelShape& shape, int stage) {
  const StageLayers& held = shape.stages[static_cast<std::size_t>(stage)];
  const Bytes layers = held.layers + held.mtp;
  if (shape.recompute == Recompute::kSelective && layers > 0) return scaled(shape, scores(shape));
  if (shape.recompute != Recompute::kFull || layers == 0) return 0;
  const Bytes group = shape.method == RecomputeMethod::kUniform ? std::max(1, shape.recompute_layers) : 1;
  return std::min(layers, group) * layer_activation(shape);
}

double recomputed_share(const ModelShape& shape, int stage) {
  const StageLayers& held = shape.stages[static_cast<std::size_t>(stage)];
  const int layers = held.layers + held.mtp;
  if (shape.recompute != Recompute::kFull || layers == 0) return 0.0;
  if (shape.method == RecomputeMethod::kUniform) return 1.0;
  return static_cast<double>(std::min(layers, shape.recompute_layers)) / layers;
}

ModelSizes sizes_of(const ModelShape& shape) {
  ModelSizes sizes;
  sizes.activation_dtype = shape.dtype;
  sizes.activation = boundary_activation(shape);
  for (std::size_t stage = 0; stage < shape.stages.size(); ++stage) {
    sizes.stash.push_back(stage_stash(shape, static_cast<int>(stage)));
    std::vector<ParamSize> tensors = stage_tensors(shape, static_cast<int>(stage));
    Bytes grads = 0;
    for (const ParamSize& tensor : tensors) grads += tensor.numel * kMainGradElement;
    sizes.grads.push_back(grads);
    sizes.parameters += static_cast<int>(tensors.size());
    sizes.tensors.push_back(std::move(tensors));
  }
  if (second_use(shape)) --sizes.parameters;  // the tied one once
  if (shape.tied) sizes.tied_grad = shape.vocab / shape.tp * shape.hidden * kMainGradElement;
  return sizes;
}

}  // namespace plumbline
