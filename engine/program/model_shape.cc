#include "engine/program/model_shape.h"

#include <algorithm>

#include "engine/program/layer_shape.h"

namespace plumbline {
namespace {

constexpr Bytes kMainGradElement = 4;

// Whether each layer of a stage has experts, multi-token prediction like the model's last one.
std::vector<bool> layers_of_stage(const ModelShape& shape, int stage) {
  const StageLayers& held = shape.stages[static_cast<std::size_t>(stage)];
  const LayerRange range = layer_range(shape.stages, stage);
  const auto has_experts = [&](int layer) {
    return static_cast<std::size_t>(layer) < shape.expert_layers.size() &&
           shape.expert_layers[static_cast<std::size_t>(layer)];
  };
  std::vector<bool> out;
  for (int layer = range.begin; layer < range.end; ++layer) out.push_back(has_experts(layer));
  const bool last = !shape.expert_layers.empty() && shape.expert_layers.back();
  out.insert(out.end(), static_cast<std::size_t>(held.mtp), last);
  return out;
}

// Layers from this one on that are recomputed as one, in a stage of `layers`; 0: it is kept.
std::size_t group_at(const ModelShape& shape, std::size_t layer, std::size_t layers) {
  if (shape.recompute != Recompute::kFull) return 0;
  const auto wanted = static_cast<std::size_t>(std::max(1, shape.recompute_layers));
  if (shape.method == RecomputeMethod::kUniform) return std::min(wanted, layers - layer);
  return layer < wanted ? 1 : 0;
}

// What the layers of a stage keep, what they build again at one time, and what of it in all.
struct StageBytes {
  Bytes kept = 0, most_rebuilt = 0, rebuilt = 0;
  std::size_t recomputed = 0;  // layers
};

StageBytes bytes_of_stage(const ModelShape& shape, int stage) {
  const std::vector<bool> layers = layers_of_stage(shape, stage);
  const bool selective = shape.recompute == Recompute::kSelective;
  StageBytes out;
  for (std::size_t at = 0; at < layers.size();) {
    const std::size_t group = group_at(shape, at, layers.size());
    Bytes again = selective ? detail::scores_bytes(shape) : 0;
    if (group == 0) out.kept += layer_activation(shape, layers[at]);
    for (std::size_t layer = at; layer < at + group; ++layer) again += layer_activation(shape, layers[layer]);
    if (group > 0) out.kept += boundary_activation(shape);
    out.most_rebuilt = std::max(out.most_rebuilt, again);
    out.rebuilt += again;
    out.recomputed += group;
    at += std::max<std::size_t>(group, 1);
  }
  return out;
}

// The tied embedding has a second tensor.
bool second_use(const ModelShape& shape) {
  return shape.tied && (shape.tied_twice || shape.stages.size() > 1);
}

Bytes ends_stash(const ModelShape& shape, const StageLayers& held) {
  if (!shape.ends) return 0;
  const Bytes sb = shape.tokens() * shape.micro;
  const Bytes share = shape.sequence_parallel ? shape.tp : 1;
  Bytes bytes = 0;
  if (held.embedding) bytes += 8 * sb + sb * shape.hidden / share;
  if (held.loss)
    bytes += 2 * (2 * sb * shape.hidden / share * shape.element() / 2) + 4 * sb * shape.vocab / shape.tp;
  return bytes;
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
  shape.slices = config.schedule.slices;
  shape.recompute = config.memory.recompute;
  shape.method = config.memory.recompute_method;
  shape.recompute_layers = config.memory.recompute_layers;
  shape.stages = stage_layers(config);
  return shape;
}

std::vector<ParamSize> dense_tensors(const ModelShape& shape, int stage) {
  const StageLayers& held = shape.stages[static_cast<std::size_t>(stage)];
  std::vector<ParamSize> tensors;
  const std::int64_t embedding = shape.vocab / shape.tp * shape.hidden;
  if (held.embedding) {
    tensors.push_back({embedding, shape.tied});
    if (shape.positions > 0) tensors.push_back({shape.positions * shape.hidden, false});
  }
  const std::vector<bool> layers = layers_of_stage(shape, stage);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    // A multi-token-prediction layer joins two normalized inputs (2h to h) before its layer, and ends with a norm.
    if (layer >= static_cast<std::size_t>(held.layers)) {
      for (int norm = 0; norm < (shape.norm_bias ? 6 : 3); ++norm) tensors.push_back({shape.hidden, false});
      tensors.push_back({2 * shape.hidden * shape.hidden / shape.tp, false});
    }
    detail::add_layer(shape, layers[layer], tensors);
  }
  if (held.loss) {
    tensors.push_back({shape.hidden, false});
    if (shape.norm_bias) tensors.push_back({shape.hidden, false});
    if (!shape.tied || shape.tied_twice || !held.embedding) tensors.push_back({embedding, shape.tied});
  }
  return tensors;
}

std::vector<ParamSize> expert_tensors(const ModelShape& shape, int stage) {
  std::vector<ParamSize> tensors;
  for (const bool experts : layers_of_stage(shape, stage)) {
    if (experts) detail::add_experts(shape, tensors);
  }
  return tensors;
}

std::vector<ParamSize> stage_tensors(const ModelShape& shape, int stage) {
  std::vector<ParamSize> tensors = dense_tensors(shape, stage);
  const std::vector<ParamSize> experts = expert_tensors(shape, stage);
  tensors.insert(tensors.end(), experts.begin(), experts.end());
  return tensors;
}

std::int64_t parameters_of(const ModelShape& shape) {
  ModelShape whole = shape;
  whole.tp = whole.ep = whole.etp = 1;
  std::int64_t all = 0;
  for (std::size_t stage = 0; stage < whole.stages.size(); ++stage)
    for (const ParamSize& tensor : stage_tensors(whole, static_cast<int>(stage))) all += tensor.numel;
  if (second_use(whole)) all -= whole.vocab * whole.hidden;
  return all;
}

Bytes layer_activation(const ModelShape& shape, bool experts) {
  const Bytes again = shape.recompute == Recompute::kSelective ? detail::scores_bytes(shape) : 0;
  return detail::layer_bytes(shape, experts) - again;
}

Bytes boundary_activation(const ModelShape& shape) {
  const Bytes all = shape.tokens() * shape.micro * shape.hidden * shape.element();
  return shape.sequence_parallel ? all / shape.tp : all;
}

Bytes stage_stash(const ModelShape& shape, int stage) {
  const StageLayers& held = shape.stages[static_cast<std::size_t>(stage)];
  return std::max<Bytes>(1, bytes_of_stage(shape, stage).kept + ends_stash(shape, held));
}

Bytes recompute_buffer(const ModelShape& shape, int stage) {
  return bytes_of_stage(shape, stage).most_rebuilt;
}
Bytes recompute_buffer_split(const ModelShape& shape, int stage) {
  return bytes_of_stage(shape, stage).rebuilt;
}

double recomputed_share(const ModelShape& shape, int stage) {
  const std::vector<bool> layers = layers_of_stage(shape, stage);
  if (shape.recompute == Recompute::kNone || layers.empty()) return 0.0;
  const auto count = static_cast<double>(layers.size());
  if (shape.recompute == Recompute::kFull)
    return static_cast<double>(bytes_of_stage(shape, stage).recomputed) / count;
  if (detail::scores_bytes(shape) == 0) return 0.0;
  double shares = 0.0;
  for (const bool experts : layers) shares += detail::scores_share(shape, experts);
  return shares / count;
}

std::vector<Nanoseconds> recompute_times(const ModelShape& shape, const std::vector<Nanoseconds>& forward) {
  std::vector<Nanoseconds> out;
  if (shape.recompute == Recompute::kNone || forward.empty()) return out;
  for (std::size_t stage = 0; stage < shape.stages.size(); ++stage) {
    const Nanoseconds whole = stage < forward.size() ? forward[stage] : forward.back();
    const double share = recomputed_share(shape, static_cast<int>(stage));
    out.push_back(static_cast<Nanoseconds>(static_cast<double>(whole) * share));
  }
  return out;
}

ModelSizes sizes_of(const ModelShape& shape) {
  ModelSizes sizes;
  sizes.activation_dtype = shape.dtype;
  sizes.activation = boundary_activation(shape);
  for (std::size_t stage = 0; stage < shape.stages.size(); ++stage) {
    sizes.stash.push_back(stage_stash(shape, static_cast<int>(stage)));
    if (shape.recompute != Recompute::kNone) {
      sizes.rebuilt.push_back(recompute_buffer(shape, static_cast<int>(stage)));
      sizes.rebuilt_split.push_back(recompute_buffer_split(shape, static_cast<int>(stage)));
    }
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
