#include "engine/model/ops.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/base/assert.h"
#include "engine/model/arithmetic.h"
#include "engine/model/deferred.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"

namespace plumbline::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = c10::optional<Tensor>;
using Guard = at::AutoDispatchBelowADInplaceOrView;  // inside an operation, ATen need not look for autograd

Tensor matrix(const Tensor& tensor) { return tensor.view({-1, tensor.size(-1)}); }

// What a linear operation does after its product and bias.
enum class Tail : std::int64_t { kNone, kGelu, kAdd };

struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const MaybeTensor& bias, const MaybeTensor& residual, std::int64_t tail) {
    const Guard guard;
    const Arithmetic& math = arithmetic_for(x);
    const at::ScalarType type = x.scalar_type();
    const Tensor product = math.linear(x, weight, bias ? *bias : Tensor(), type);
    context->saved_data["tail"] = tail;
    context->saved_data["bias"] = bias.has_value();
    if (tail == static_cast<std::int64_t>(Tail::kGelu)) {
      const Tensor out = math.gelu(product, type);
      context->save_for_backward({x, weight, bias ? *bias : Tensor(), math.stored(product, type)});
      return math.stored(out, type);
    }
    context->save_for_backward({x, weight, bias ? *bias : Tensor()});
    if (tail != static_cast<std::int64_t>(Tail::kAdd)) return math.stored(product, type);
    return math.stored(math.add(product, *residual, type), type);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    const Arithmetic& math = arithmetic_for(saved[0]);
    const std::int64_t tail = context->saved_data["tail"].toInt();
    const at::ScalarType type = saved[0].scalar_type();
    Tensor gradient = math.operand(gradients[0].contiguous());
    if (tail == static_cast<std::int64_t>(Tail::kGelu)) gradient = math.gelu_grad(saved[3], gradient, type);
    const Tensor flat = matrix(gradient);
    variable_list out(5);
    if (context->needs_input_grad(0))
      out[0] = math.stored(math.product(flat, saved[1]), type).view(saved[0].sizes());
    out[1] = weight_gradient(saved[1], [&math, flat, x = saved[0], type] {
      const Guard inner;
      return math.stored(math.transposed_product(flat, matrix(math.operand(x))), type);
    });
    if (context->saved_data["bias"].toBool()) {
      out[2] = weight_gradient(saved[2], [&math, flat, type] {
        const Guard inner;
        return math.stored(math.column_sums(flat), type);
      });
    }
    if (tail == static_cast<std::int64_t>(Tail::kAdd)) out[3] = gradients[0];
    return out;
  }
};

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Guard guard;
    Arithmetic::Normed normed = arithmetic_for(x).layer_norm(x, weight, bias);
    context->save_for_backward({x, weight, normed.mean, normed.rstd});
    return normed.out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    const Arithmetic::NormGradient d = arithmetic_for(saved[0]).layer_norm_grad(
        saved[0], saved[1], saved[2], saved[3], gradients[0].contiguous());
    return {d.x, d.weight, d.bias};
  }
};

struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, std::int64_t heads) {
    const Guard guard;
    Arithmetic::Attended attended = arithmetic_for(qkv).attention(qkv.contiguous(), heads);
    context->save_for_backward({qkv, attended.probabilities});
    context->saved_data["heads"] = heads;
    return attended.out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    return {
        arithmetic_for(saved[0]).attention_grad(saved[0].contiguous(), saved[1], gradients[0].contiguous(),
                                                context->saved_data["heads"].toInt()),
        Tensor()};
  }
};

struct Embedding : torch::autograd::Function<Embedding> {
  static Tensor forward(AutogradContext* context, const Tensor& tokens, const Tensor& table,
                        const Tensor& positions) {
    const Guard guard;
    context->save_for_backward({tokens, table, positions});
    return arithmetic_for(table).embedding(tokens, table, positions);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    const Arithmetic& math = arithmetic_for(saved[1]);
    const at::ScalarType type = gradients[0].scalar_type();
    const Tensor gradient = math.operand(gradients[0].contiguous());
    return {Tensor(),
            weight_gradient(saved[1],
                            [&math, tokens = saved[0], gradient, type, n = saved[1].size(0)] {
                              const Guard inner;
                              return math.stored(math.sums_by_token(tokens, gradient, n), type);
                            }),
            weight_gradient(saved[2], [&math, gradient, type, n = saved[2].size(0)] {
              const Guard inner;
              return math.stored(math.sums_by_place(gradient, n), type);
            })};
  }
};

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets) {
    const Guard guard;
    context->save_for_backward({logits, targets});
    return arithmetic_for(logits).cross_entropy(logits, targets);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    return {arithmetic_for(saved[0]).cross_entropy_grad(saved[0], saved[1], gradients[0]), Tensor()};
  }
};

struct Computation : torch::CustomClassHolder {
  std::function<Tensor(const Tensor&)> compute;
};

// The backward runs a backward of its own through the graph of the second computation; its leaves' gradients are added
// up, or put off, as they would have been.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const c10::intrusive_ptr<Computation>& computation) {
    context->save_for_backward({x});
    context->saved_data["computation"] = c10::IValue::make_capsule(computation);
    return computation->compute(x);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto holder = context->saved_data["computation"].toCapsule();
    Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    Tensor again;
    {
      const at::AutoGradMode records(true);
      again = static_cast<Computation&>(*holder).compute(x);
    }
    torch::autograd::backward({again}, {gradients[0]});
    return {x.grad(), Tensor()};
  }
};

}  // namespace

Tensor checkpoint(std::function<Tensor(const Tensor&)> compute, const Tensor& x) {
  if (!at::GradMode::is_enabled()) return compute(x);
  auto computation = c10::make_intrusive<Computation>();
  computation->compute = std::move(compute);
  return Checkpoint::apply(x, computation);
}

Tensor to_float(const Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return tensor.contiguous();
  const Tensor dense = tensor.contiguous();
  Tensor out = at::empty(dense.sizes(), at::TensorOptions().dtype(at::kFloat));
  widen(dense.data_ptr(), dtype_of(dense.scalar_type()), out.data_ptr<float>(),
        static_cast<std::size_t>(out.numel()));
  return out;
}

Tensor to_type(const Tensor& fp32_tensor, at::ScalarType type) {
  if (type == at::kFloat) return fp32_tensor;
  Tensor out = at::empty(fp32_tensor.sizes(), fp32_tensor.options().dtype(type));
  narrow(fp32_tensor.data_ptr<float>(), dtype_of(type), out.data_ptr(),
         static_cast<std::size_t>(out.numel()));
  return out;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return Linear::apply(x, weight, bias.defined() ? MaybeTensor(bias) : MaybeTensor(), MaybeTensor(),
                       static_cast<std::int64_t>(Tail::kNone));
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return Linear::apply(x, weight, MaybeTensor(bias), MaybeTensor(), static_cast<std::int64_t>(Tail::kGelu));
}

Tensor linear_add(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  return Linear::apply(x, weight, MaybeTensor(bias), MaybeTensor(residual),
                       static_cast<std::int64_t>(Tail::kAdd));
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return LayerNorm::apply(x, weight, bias);
}

Tensor causal_attention(const Tensor& qkv, std::int64_t heads) { return Attention::apply(qkv, heads); }

// Earlier positions ask nothing: their queries are zeros, and what they would get is cut off.
Tensor causal_attention(const Tensor& qkv, const Tensor& past, std::int64_t heads) {
  const std::int64_t before = past.size(1), width = qkv.size(2) / 3;
  const Tensor no_queries = at::zeros({past.size(0), before, width}, past.options());
  const Tensor all = at::cat({at::cat({no_queries, past}, 2), qkv}, 1);
  return causal_attention(all, heads).narrow(1, before, qkv.size(1)).contiguous();
}

Tensor embedding(const Tensor& tokens, const Tensor& table, const Tensor& positions) {
  return Embedding::apply(tokens, table, positions);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  return CrossEntropy::apply(logits, targets);
}

}  // namespace plumbline::ops
