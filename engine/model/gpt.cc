// A byte-level GPT: learned positions, pre-norm blocks of causal attention and a GELU MLP, a final norm, and
// an output head that is the embedding again (tied). Layers are split evenly over the stages. Weights are
// normal with model.init_std, the two projections that write to the residual stream with init_std / sqrt(2 *
// layers), biases zero (Radford et al., 2019).
#include <cmath>
#include <utility>

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
  const LayerRange range = layers_of_stage(model.layers, stage, stages);
  for (int layer = range.begin; layer < range.end; ++layer) plan_layer(model, layer, plans);
  if (stage == stages - 1) {
    plans.push_back(ones("final.norm.weight", model.hidden));
    plans.push_back(zeros("final.norm.bias", model.hidden));
    plans.push_back(embedding_plan(model));
  }
  return plans;
}

class GptStage : public Stage {
 public:
  explicit GptStage(const StageSpec& spec) : spec_(spec), heads_(spec.config->model.heads) {
    for (const Plan& plan : plan_stage(*spec.config, spec.stage, spec.stages)) {
      parameters_.push_back(plan.ones ? constant_parameter(spec, plan.name, plan.shape, 1.0)
                                      : normal_parameter(spec, plan.name, plan.shape, plan.std));
      parameters_.back().tied = plan.tied;
    }
    const LayerRange range = layers_of_stage(spec.config->model.layers, spec.stage, spec.stages);
    layers_ = range.end - range.begin;
  }

  std::vector<StageParameter>& parameters() override { return parameters_; }

  at::Tensor forward(const at::Tensor& input, const Batch& batch) override {
    std::size_t next = 0;
    at::Tensor x = input;
    if (spec_.first()) {
      x = ops::embedding(batch.tokens, parameter(0), parameter(1));
      next = 2;
    }
    for (int layer = 0; layer < layers_; ++layer, next += kParametersOfLayer) x = block(x, next);
    if (!spec_.last()) return x;
    x = ops::layer_norm(x, parameter(next), parameter(next + 1));
    return ops::cross_entropy(ops::linear(x, parameter(next + 2)), batch.targets);
  }

 private:
  const at::Tensor& parameter(std::size_t index) const { return parameters_[index].value; }

  at::Tensor block(const at::Tensor& x, std::size_t p) const {
    const at::Tensor qkv =
        ops::linear(ops::layer_norm(x, parameter(p), parameter(p + 1)), parameter(p + 2), parameter(p + 3));
    const at::Tensor mixed = ops::causal_attention(qkv, heads_);
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

// What the operations of a stage keep for their backward: see ops.cc. The stage's input is a slot of its own.
Bytes stash_bytes(const RunConfig& config, int stage, int stages) {
  const ModelConfig& model = config.model;
  const std::int64_t element = dtype_bytes(dtype_of(config.train.precision));
  const std::int64_t tokens = std::int64_t{config.train.micro_batch_size} * model.seq_length;
  const std::int64_t wide = tokens * model.hidden;
  const std::int64_t scores =
      std::int64_t{config.train.micro_batch_size} * model.heads * model.seq_length * model.seq_length;
  const LayerRange range = layers_of_stage(model.layers, stage, stages);
  const std::int64_t layers = range.end - range.begin;
  const std::int64_t moments = 2 * 4 * tokens;  // of one norm, fp32
  Bytes bytes = layers * (element * (8 * wide + 2 * tokens * model.ffn_hidden + scores) + 2 * moments);
  if (stage > 0 && layers > 0) bytes -= element * wide;
  if (stage == stages - 1) bytes += element * (2 * wide + tokens * model.vocab) + moments;
  return bytes;
}

ModelSizes gpt_sizes(const RunConfig& config) {
  const int stages = config.stages();
  ModelSizes sizes;
  sizes.activation_dtype = dtype_of(config.train.precision);
  sizes.activation = Bytes{config.train.micro_batch_size} * config.model.seq_length * config.model.hidden *
                     dtype_bytes(sizes.activation_dtype);
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
    sizes.stash.push_back(stash_bytes(config, stage, stages));
  }
  --sizes.parameters;  // the tied one counts once
  sizes.tied_grad = 4 * embedding_plan(config.model).elements();
  return sizes;
}

}  // namespace

ModelFamily detail::gpt_family() {
  return {"gpt", "byte-level GPT, embedding tied to the output head", make_gpt, gpt_sizes};
}

}  // namespace plumbline
