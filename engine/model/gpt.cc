// A byte-level GPT: learned positions, pre-norm blocks of causal attention and a GELU MLP, a final norm, and
// an output head that is the embedding again (tied). Layers lie on stages as stage_layers.h says; what [memory]
// recompute names is built again in the backward: groups of layers, or attention's probabilities. Of sequences in
// slices, a slice's attention reads the keys and values that earlier ones left. Weights are normal with model.init_std,
// the two projections that write to the residual stream with init_std / sqrt(2 * layers), biases zero (Radford et al.,
// 2019).
#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "engine/config/stage_layers.h"
#include "engine/model/builtin.h"
#include "engine/model/init.h"
#include "engine/model/ops.h"
#include "engine/model/precision.h"

namespace plumbline {
namespace {

struct Plan {
  std::string name;
  std::vector<std::int64_t> shape;
  double std = 0.0;
  bool ones = false;
  bool tied = false;
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }
};

constexpr std::size_t kParametersOfLayer = 12;

Plan normal(std::string name, std::vector<std::int64_t> shape, double std) {
  return {std::move(name), std::move(shape), std};
}
Plan zeros(std::string name, std::int64_t size) { return {std::move(name), {size}}; }
Plan ones(std::string name, std::int64_t size) { return {std::move(name), {size}, 0.0, true}; }

Plan embedding_plan(const ModelConfig& model) {
  return {"embedding.tokens", {model.vocab, model.hidden}, model.init_std, false, true};
}

void plan_layer(const ModelConfig& model, int layer, std::vector<Plan>& out) {
  const std::string at = "layers." + std::to_string(layer) + ".";
  const std::int64_t h = model.hidden, f = model.ffn_hidden;
  const double residual_std = model.init_std / std::sqrt(2.0 * model.layers);
  const std::vector<Plan> plans{
      ones(at + "attention.norm.weight", h),
      zeros(at + "attention.norm.bias", h),
      normal(at + "attention.qkv.weight", {3 * h, h}, model.init_std),
      zeros(at + "attention.qkv.bias", 3 * h),
      normal(at + "attention.out.weight", {h, h}, residual_std),
      zeros(at + "attention.out.bias", h),
      ones(at + "mlp.norm.weight", h),
      zeros(at + "mlp.norm.bias", h),
      normal(at + "mlp.in.weight", {f, h}, model.init_std),
      zeros(at + "mlp.in.bias", f),
      normal(at + "mlp.out.weight", {h, f}, residual_std),
      zeros(at + "mlp.out.bias", h),
  };
  out.insert(out.end(), plans.begin(), plans.end());
}

// The parameters of a stage in their order: embedding and positions, layers, final norm and the tied head.
std::vector<Plan> plan_stage(const RunConfig& config, int stage, int stages) {
  const ModelConfig& model = config.model;
  std::vector<Plan> plans;
  if (stage == 0) {
    plans.push_back(embedding_plan(model));
    plans.push_back(normal("embedding.positions", {model.seq_length, model.hidden}, model.init_std));
  }
  const LayerRange range = layer_range(stage_layers(config), stage);
  for (int layer = range.begin; layer < range.end; ++layer) plan_layer(model, layer, plans);
  if (stage == stages - 1) {
    plans.push_back(ones("final.norm.weight", model.hidden));
    plans.push_back(zeros("final.norm.bias", model.hidden));
    plans.push_back(embedding_plan(model));
  }
  return plans;
}

// Layers from this one on that are recomputed as one, in a stage of `layers`; 0: it is kept.
int group_at(const MemoryConfig& memory, int layer, int layers) {
  if (memory.recompute != Recompute::kFull) return 0;
  if (memory.recompute_method == RecomputeMethod::kUniform)
    return std::min(memory.recompute_layers, layers - layer);
  return layer < memory.recompute_layers ? 1 : 0;
}

class GptStage : public Stage {
 public:
  explicit GptStage(const StageSpec& spec) : spec_(spec), heads_(spec.config->model.heads) {
    for (const Plan& plan : plan_stage(*spec.config, spec.stage, spec.stages)) {
      parameters_.push_back(plan.ones ? constant_parameter(spec, plan.name, plan.shape, 1.0)
                                      : normal_parameter(spec, plan.name, plan.shape, plan.std));
      parameters_.back().tied = plan.tied;
    }
    const LayerRange range = layer_range(stage_layers(*spec.config), spec.stage);
    layers_ = range.end - range.begin;
  }

  std::vector<StageParameter>& parameters() override { return parameters_; }

  at::Tensor forward(const at::Tensor& input, const Batch& batch) override {
    std::size_t next = 0;
    at::Tensor x = input;
    if (spec_.first()) {
      const std::int64_t length = batch.tokens.size(1);
      x = ops::embedding(batch.tokens, parameter(0),
                         batch.place == nullptr
                             ? parameter(1)
                             : parameter(1).narrow(0, batch.place->slice * length, length));
      next = 2;
    }
    x = layers(std::move(x), next, batch.place);
    next += static_cast<std::size_t>(layers_) * kParametersOfLayer;
    if (!spec_.last()) return layers_ == 0 && !spec_.first() ? x.clone() : x;  // an output is no input
    x = ops::layer_norm(x, parameter(next), parameter(next + 1));
    return ops::cross_entropy(ops::linear(x, parameter(next + 2)), batch.targets);
  }

 private:
  const at::Tensor& parameter(std::size_t index) const { return parameters_[index].value; }

  at::Tensor layers(at::Tensor x, std::size_t begin, const SlicePlace* place) const {
    const auto at = [begin](int layer) {
      return begin + static_cast<std::size_t>(layer) * kParametersOfLayer;
    };
    for (int layer = 0; layer < layers_;) {
      const int end = layer + group_at(spec_.config->memory, layer, layers_);
      if (end == layer) {
        x = block(x, at(layer), layer, place);
        ++layer;
        continue;
      }
      x = ops::checkpoint(
          [this, at, layer, end](const at::Tensor& input) {
            at::Tensor y = input;
            for (int inner = layer; inner < end; ++inner) y = block(y, at(inner), inner, nullptr);
            return y;
          },
          x);
      layer = end;
    }
    return x;
  }

  // Of a slice: leaves its keys and values for later ones, and reads those of the slices before.
  at::Tensor sliced_attention(const at::Tensor& qkv, int layer, const SlicePlace& place) const {
    const std::int64_t width = qkv.size(2) / 3;
    const at::Tensor own = qkv.narrow(2, width, 2 * width);
    place.here->own.push_back(own);
    place.here->shared.push_back(own.detach().clone().requires_grad_(at::GradMode::is_enabled()));
    if (place.before.empty()) return ops::causal_attention(qkv, heads_);
    std::vector<at::Tensor> past;
    for (const SliceState* state : place.before)
      past.push_back(state->shared[static_cast<std::size_t>(layer)]);
    return ops::causal_attention(qkv, at::cat(past, 1), heads_);
  }

  at::Tensor attention(const at::Tensor& qkv, int layer, const SlicePlace* place) const {
    if (place != nullptr) return sliced_attention(qkv, layer, *place);
    if (spec_.config->memory.recompute != Recompute::kSelective) return ops::causal_attention(qkv, heads_);
    return ops::checkpoint(
        [heads = heads_](const at::Tensor& input) { return ops::causal_attention(input, heads); }, qkv);
  }

  at::Tensor block(const at::Tensor& x, std::size_t p, int layer, const SlicePlace* place) const {
    const at::Tensor qkv =
        ops::linear(ops::layer_norm(x, parameter(p), parameter(p + 1)), parameter(p + 2), parameter(p + 3));
    const at::Tensor mixed = attention(qkv, layer, place);
    const at::Tensor y = ops::linear_add(mixed, parameter(p + 4), parameter(p + 5), x);
    const at::Tensor normed = ops::layer_norm(y, parameter(p + 6), parameter(p + 7));
    const at::Tensor inner = ops::linear_gelu(normed, parameter(p + 8), parameter(p + 9));
    return ops::linear_add(inner, parameter(p + 10), parameter(p + 11), y);
  }

  StageSpec spec_;
  int heads_;
  int layers_ = 0;
  std::vector<StageParameter> parameters_;
};

std::unique_ptr<Stage> make_gpt(const StageSpec& spec) { return std::make_unique<GptStage>(spec); }

// What a forward keeps and what a backward builds again, in bytes.
struct StageBytes {
  Bytes stash = 0, rebuilt = 0, rebuilt_split = 0;
};

// What the operations of a layer keep for their backward: see ops.cc. Its input is the first wide tensor.
struct LayerBytes {
  Bytes input = 0, scores = 0, all = 0;
};

// Of one pass: a microbatch's sequences, or a slice of each.
std::int64_t tokens_of(const RunConfig& config) {
  return std::int64_t{config.train.micro_batch_size} * config.model.seq_length / config.schedule.slices;
}

LayerBytes layer_bytes(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const std::int64_t element = dtype_bytes(dtype_of(config.train.precision));
  const std::int64_t tokens = tokens_of(config);
  LayerBytes bytes;
  bytes.input = element * tokens * model.hidden;
  // Of a sequence's last slice, which pads its queries to those of the whole sequence.
  bytes.scores = element * config.train.micro_batch_size * model.heads * model.seq_length * model.seq_length;
  const std::int64_t moments = 2 * 4 * tokens;  // of one norm, fp32
  bytes.all = 8 * bytes.input + element * 2 * tokens * model.ffn_hidden + bytes.scores + 2 * moments;
  return bytes;
}

// The input of the stage's first layer is a slot of its own, except on the first stage.
StageBytes stage_bytes(const RunConfig& config, const StageLayers& held) {
  const ModelConfig& model = config.model;
  const LayerBytes layer = layer_bytes(config);
  const bool selective = config.memory.recompute == Recompute::kSelective;
  StageBytes bytes;
  for (int at = 0; at < held.layers;) {
    const int group = group_at(config.memory, at, held.layers);
    const Bytes again = selective ? layer.scores : group > 0 ? group * layer.all - layer.input : 0;
    bytes.stash += std::max(group, 1) * layer.all - again;
    bytes.rebuilt = std::max(bytes.rebuilt, again);
    bytes.rebuilt_split += again;
    at += std::max(group, 1);
  }
  if (!held.embedding && held.layers > 0) bytes.stash -= layer.input;
  if (held.loss) {
    const std::int64_t tokens = tokens_of(config);
    const Bytes logits = dtype_bytes(dtype_of(config.train.precision)) * tokens * model.vocab;
    bytes.stash += 2 * layer.input + logits + 2 * 4 * tokens;
  }
  bytes.stash = std::max<Bytes>(1, bytes.stash);  // a stage without layers keeps nothing, and has a slot
  return bytes;
}

ModelSizes gpt_sizes(const RunConfig& config) {
  const int stages = config.stages();
  const std::vector<StageLayers> held = stage_layers(config);
  ModelSizes sizes;
  sizes.activation_dtype = dtype_of(config.train.precision);
  sizes.activation = tokens_of(config) * config.model.hidden * dtype_bytes(sizes.activation_dtype);
  for (int stage = 0; stage < stages; ++stage) {
    Bytes grads = 0;
    std::vector<ParamSize> tensors;
    for (const Plan& plan : plan_stage(config, stage, stages)) {
      grads += 4 * plan.elements();
      tensors.push_back({plan.elements(), plan.tied});
      ++sizes.parameters;
    }
    sizes.grads.push_back(grads);
    sizes.tensors.push_back(std::move(tensors));
    const StageBytes bytes = stage_bytes(config, held[static_cast<std::size_t>(stage)]);
    sizes.stash.push_back(bytes.stash);
    if (config.memory.recompute == Recompute::kNone) continue;
    sizes.rebuilt.push_back(bytes.rebuilt);
    sizes.rebuilt_split.push_back(bytes.rebuilt_split);
  }
  --sizes.parameters;  // the tied one counts once
  sizes.tied_grad = 4 * embedding_plan(config.model).elements();
  return sizes;
}

}  // namespace

ModelFamily detail::gpt_family() {
  return {"gpt", "byte-level GPT, embedding tied to the output head", make_gpt, gpt_sizes, true, true, true};
}

}  // namespace plumbline
