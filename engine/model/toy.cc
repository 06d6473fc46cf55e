// The toy model: small enough to reason about, and its gradients prove that every contribution arrived once
// (toy_check.h). An activation row is [one-hot of the entry | sum | stages passed]; a stage adds its
// parameter at the one-hot's place to the sum and counts itself. A gradient row carries the loss weight in
// the sum's place and the stages passed on the way back in the count's. A stage that sees a count it does not
// expect spoils its contribution by a factor, so that a tensor which came from the wrong stage shows although
// all entries look alike there.
//
// tokens hold the entry and targets its loss weight (train/data.h draws them so for this model).
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/base/assert.h"
#include "engine/model/builtin.h"
#include "engine/model/deferred.h"
#include "engine/model/init.h"
#include "engine/model/ops.h"
#include "engine/model/precision.h"
#include "engine/model/toy_check.h"

namespace plumbline {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr float kWrongForward = 3.0f;   // factor on a contribution whose activation passed the wrong stages
constexpr float kWrongBackward = 5.0f;  // the same for the gradient

std::int64_t entries_of(const RunConfig& config) {
  return std::int64_t{config.passes()} * config.parallel.dp;
}

// Rows are all alike; the first is the one computed with.
Tensor repeat_row(const std::vector<float>& row, const Tensor& like) {
  Tensor out = at::empty(like.sizes(), at::TensorOptions().dtype(at::kFloat));
  const std::int64_t width = static_cast<std::int64_t>(row.size());
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = row[static_cast<std::size_t>(i % width)];
  return ops::to_type(out, like.scalar_type());
}

struct ToyFunction : torch::autograd::Function<ToyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& parameter,
                        std::int64_t stage, std::int64_t stages) {
    const Tensor wide = ops::to_float(input);
    const std::int64_t width = input.size(-1), entries = width - 2;
    std::vector<float> row(wide.data_ptr<float>(), wide.data_ptr<float>() + width);
    const Tensor own = ops::to_float(parameter);
    const float gate =
        row[static_cast<std::size_t>(entries + 1)] == static_cast<float>(stage) ? 1.0f : kWrongForward;
    float sum = row[static_cast<std::size_t>(entries)];
    for (std::int64_t i = 0; i < entries; ++i)
      sum += gate * row[static_cast<std::size_t>(i)] * own.data_ptr<float>()[i];
    row[static_cast<std::size_t>(entries)] = sum;
    row[static_cast<std::size_t>(entries + 1)] += 1.0f;
    context->save_for_backward({input, parameter});
    context->saved_data["gate"] = static_cast<double>(gate);
    context->saved_data["behind"] = stages - 1 - stage;
    return repeat_row(row, input);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& input = saved[0];
    const Tensor gradient = ops::to_float(gradients[0]);
    const std::int64_t width = input.size(-1), entries = width - 2;
    const float weight = gradient.data_ptr<float>()[entries];
    const float passed = gradient.data_ptr<float>()[entries + 1];
    const float behind = static_cast<float>(context->saved_data["behind"].toInt());
    const float gate = static_cast<float>(context->saved_data["gate"].toDouble()) *
                       (passed == behind ? 1.0f : kWrongBackward);
    const Tensor own = weight_gradient(saved[1], [input, entries, factor = weight * gate] {
      const Tensor wide = ops::to_float(input);
      Tensor out = at::empty({entries}, at::TensorOptions().dtype(at::kFloat));
      for (std::int64_t i = 0; i < entries; ++i)
        out.data_ptr<float>()[i] = factor * wide.data_ptr<float>()[i];
      return ops::to_type(out, input.scalar_type());
    });
    std::vector<float> row(static_cast<std::size_t>(width), 0.0f);
    row[static_cast<std::size_t>(entries)] = weight;
    row[static_cast<std::size_t>(entries + 1)] = passed + 1.0f;
    return {repeat_row(row, input), own, Tensor(), Tensor()};
  }
};

// weight * sum; its backward starts the gradient row.
struct ToyLoss : torch::autograd::Function<ToyLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& input, std::int64_t weight) {
    context->save_for_backward({input});
    context->saved_data["weight"] = weight;
    Tensor loss = at::empty({}, at::TensorOptions().dtype(at::kFloat));
    *loss.data_ptr<float>() =
        static_cast<float>(weight) * ops::to_float(input).data_ptr<float>()[input.size(-1) - 2];
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Tensor input = context->get_saved_variables()[0];
    std::vector<float> row(static_cast<std::size_t>(input.size(-1)), 0.0f);
    row[row.size() - 2] =
        static_cast<float>(context->saved_data["weight"].toInt()) * *gradients[0].data_ptr<float>();
    return {repeat_row(row, input), Tensor()};
  }
};

class ToyStage : public Stage {
 public:
  explicit ToyStage(const StageSpec& spec) : spec_(spec) {
    const std::int64_t entries = entries_of(*spec.config);
    PL_ASSERT_MSG(entries <= toy_max_entries(dtype_of(spec.config->train.precision)),
                  "too many microbatches for the toy model");
    parameters_.push_back(constant_parameter(spec, "toy." + std::to_string(spec.stage), {entries}, 0.0));
  }

  std::vector<StageParameter>& parameters() override { return parameters_; }

  Tensor forward(const Tensor& input, const Batch& batch) override {
    Tensor x = input;
    if (spec_.first()) {
      const std::int64_t entry = batch.tokens.data_ptr<std::int64_t>()[0];
      x = at::zeros({batch.tokens.size(0), batch.tokens.size(1), entries_of(*spec_.config) + 2},
                    parameters_[0].value.options());
      x.select(-1, entry).fill_(1.0);
    }
    x = ToyFunction::apply(x, parameters_[0].value, std::int64_t{spec_.stage}, std::int64_t{spec_.stages});
    return spec_.last() ? ToyLoss::apply(x, batch.targets.data_ptr<std::int64_t>()[0]) : x;
  }

 private:
  StageSpec spec_;
  std::vector<StageParameter> parameters_;
};

std::unique_ptr<Stage> make_toy(const StageSpec& spec) { return std::make_unique<ToyStage>(spec); }

ModelSizes toy_sizes(const RunConfig& config) {
  ModelSizes sizes;
  sizes.activation_dtype = dtype_of(config.train.precision);
  sizes.activation = Bytes{config.train.micro_batch_size} * config.model.seq_length *
                     (entries_of(config) + 2) * dtype_bytes(sizes.activation_dtype);
  sizes.stash.assign(static_cast<std::size_t>(config.stages()), sizes.activation);
  sizes.grads.assign(static_cast<std::size_t>(config.stages()), 4 * entries_of(config));
  sizes.tensors.assign(static_cast<std::size_t>(config.stages()), {{entries_of(config), false}});
  sizes.parameters = config.stages();
  return sizes;
}

}  // namespace

ModelFamily detail::toy_family() {
  return {"toy", "proves that every microbatch contributes exactly once to every stage", make_toy, toy_sizes};
}

}  // namespace plumbline
