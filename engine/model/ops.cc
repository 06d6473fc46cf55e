#include "engine/model/ops.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/base/assert.h"
#include "engine/model/deferred.h"
#include "engine/model/kernels.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"

namespace plumbline::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = c10::optional<Tensor>;
using Guard = at::AutoDispatchBelowADInplaceOrView;  // inside an operation, ATen need not look for autograd

Tensor fp32(at::IntArrayRef shape) { return at::empty(shape, at::TensorOptions().dtype(at::kFloat)); }
const float* read(const Tensor& tensor) { return tensor.data_ptr<float>(); }
float* write(const Tensor& tensor) { return tensor.data_ptr<float>(); }
std::int64_t columns_of(const Tensor& tensor) { return tensor.size(-1); }
std::int64_t rows_of(const Tensor& tensor) { return tensor.numel() / columns_of(tensor); }
Tensor matrix(const Tensor& tensor) { return tensor.view({rows_of(tensor), columns_of(tensor)}); }

std::vector<std::int64_t> with_columns(const Tensor& like, std::int64_t columns) {
  std::vector<std::int64_t> shape = like.sizes().vec();
  shape.back() = columns;
  return shape;
}

// What a linear operation does after its product and bias.
enum class Tail : std::int64_t { kNone, kGelu, kAdd };

struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const MaybeTensor& bias, const MaybeTensor& residual, std::int64_t tail) {
    const Guard guard;
    const at::ScalarType type = x.scalar_type();
    const DType dtype = dtype_of(type);
    Tensor product = fp32(with_columns(x, weight.size(0)));
    Tensor flat = matrix(product);
    at::mm_out(flat, matrix(to_float(x)), to_float(weight).t());
    const Tensor wide_bias = bias ? to_float(*bias) : Tensor();
    kernels::add_bias(write(product), bias ? read(wide_bias) : nullptr, rows_of(product), columns_of(product),
                      dtype);
    context->saved_data["tail"] = tail;
    context->saved_data["bias"] = bias.has_value();
    if (tail == static_cast<std::int64_t>(Tail::kGelu)) {
      Tensor out = fp32(product.sizes());
      kernels::gelu(read(product), write(out), product.numel(), dtype);
      context->save_for_backward({x, weight, bias ? *bias : Tensor(), to_type(product, type)});
      return to_type(out, type);
    }
    if (tail == static_cast<std::int64_t>(Tail::kAdd)) {
      kernels::add(write(product), read(to_float(*residual)), product.numel(), dtype);
    }
    context->save_for_backward({x, weight, bias ? *bias : Tensor()});
    return to_type(product, type);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    const std::int64_t tail = context->saved_data["tail"].toInt();
    const at::ScalarType type = saved[0].scalar_type();
    const DType dtype = dtype_of(type);
    Tensor gradient = to_float(gradients[0].contiguous());
    if (tail == static_cast<std::int64_t>(Tail::kGelu)) {
      Tensor inner = fp32(gradient.sizes());
      kernels::gelu_grad(read(to_float(saved[3])), read(gradient), write(inner), inner.numel(), dtype);
      gradient = inner;
    }
    const Tensor flat = matrix(gradient);
    variable_list out(5);
    if (context->needs_input_grad(0)) {
      Tensor dx = fp32(saved[0].sizes());
      Tensor dx_flat = matrix(dx);
      at::mm_out(dx_flat, flat, to_float(saved[1]));
      out[0] = to_type(dx, type);
    }
    out[1] = weight_gradient(saved[1], [flat, x = saved[0], shape = saved[1].sizes().vec(), type] {
      const Guard inner;
      Tensor dw = fp32(shape);
      at::mm_out(dw, flat.t(), matrix(to_float(x)));
      return to_type(dw, type);
    });
    if (context->saved_data["bias"].toBool()) {
      out[2] = weight_gradient(saved[2], [flat, type] {
        const Guard inner;
        Tensor db = fp32({flat.size(1)});
        kernels::column_sums(read(flat), write(db), flat.size(0), flat.size(1));
        return to_type(db, type);
      });
    }
    if (tail == static_cast<std::int64_t>(Tail::kAdd)) out[3] = gradients[0];
    return out;
  }
};

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Guard guard;
    Tensor out = fp32(x.sizes());
    Tensor moments = fp32({2, rows_of(x)});
    kernels::layer_norm(read(to_float(x)), read(to_float(weight)), read(to_float(bias)), write(out),
                        write(moments), write(moments) + rows_of(x), rows_of(x), columns_of(x),
                        dtype_of(x.scalar_type()));
    context->save_for_backward({x, weight, moments});
    return to_type(out, x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const std::int64_t rows = rows_of(x), columns = columns_of(x);
    Tensor dx = fp32(x.sizes());
    Tensor dw = fp32({columns});
    Tensor db = fp32({columns});
    kernels::layer_norm_grad(read(to_float(x)), read(to_float(saved[1])), read(saved[2]),
                             read(saved[2]) + rows, read(to_float(gradients[0].contiguous())), write(dx),
                             write(dw), write(db), rows, columns, dtype_of(x.scalar_type()));
    return {to_type(dx, x.scalar_type()), to_type(dw, x.scalar_type()), to_type(db, x.scalar_type())};
  }
};

struct Attention : torch::autograd::Function<Attention> {
  static kernels::AttentionShape shape_of(const Tensor& qkv, std::int64_t heads) {
    return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
  }

  static Tensor forward(AutogradContext* context, const Tensor& qkv, std::int64_t heads) {
    const Guard guard;
    const kernels::AttentionShape shape = shape_of(qkv, heads);
    Tensor out = fp32({shape.batch, shape.length, heads * shape.depth});
    Tensor probabilities = fp32({shape.batch, heads, shape.length, shape.length});
    kernels::attention(shape, read(to_float(qkv)), write(out), write(probabilities),
                       dtype_of(qkv.scalar_type()));
    context->save_for_backward({qkv, to_type(probabilities, qkv.scalar_type())});
    context->saved_data["heads"] = heads;
    return to_type(out, qkv.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    const kernels::AttentionShape shape = shape_of(saved[0], context->saved_data["heads"].toInt());
    Tensor d_qkv = fp32(saved[0].sizes());
    kernels::attention_grad(shape, read(to_float(saved[0])), read(to_float(saved[1])),
                            read(to_float(gradients[0].contiguous())), write(d_qkv),
                            dtype_of(saved[0].scalar_type()));
    return {to_type(d_qkv, saved[0].scalar_type()), Tensor()};
  }
};

struct Embedding : torch::autograd::Function<Embedding> {
  static Tensor forward(AutogradContext* context, const Tensor& tokens, const Tensor& table,
                        const Tensor& positions) {
    const Guard guard;
    const std::int64_t batch = tokens.size(0), length = tokens.size(1), hidden = table.size(1);
    const Tensor wide = to_float(table), places = to_float(positions);
    Tensor out = fp32({batch, length, hidden});
    const std::int64_t* ids = tokens.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < batch * length; ++i) {
      const float* word = read(wide) + ids[i] * hidden;
      const float* place = read(places) + (i % length) * hidden;
      for (std::int64_t c = 0; c < hidden; ++c) write(out)[i * hidden + c] = word[c] + place[c];
    }
    round_to(dtype_of(table.scalar_type()), write(out), static_cast<std::size_t>(out.numel()));
    context->save_for_backward({tokens, table, positions});
    return to_type(out, table.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    const Tensor tokens = saved[0];
    const Tensor gradient = to_float(gradients[0].contiguous());
    const at::ScalarType type = gradients[0].scalar_type();
    const auto rows = [tokens, gradient, type](std::int64_t count, bool by_token) {
      const Guard inner;
      return to_type(summed_rows(tokens, gradient, count, by_token), type);
    };
    return {Tensor(), weight_gradient(saved[1], [rows, n = saved[1].size(0)] { return rows(n, true); }),
            weight_gradient(saved[2], [rows, n = saved[2].size(0)] { return rows(n, false); })};
  }

  // The gradient's rows added up by their token, or by their place in the sequence; in order.
  static Tensor summed_rows(const Tensor& tokens, const Tensor& gradient, std::int64_t count, bool by_token) {
    const std::int64_t length = tokens.size(1), hidden = columns_of(gradient);
    Tensor sums = at::zeros({count, hidden}, gradient.options());
    const std::int64_t* ids = tokens.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < tokens.numel(); ++i) {
      const float* g = read(gradient) + i * hidden;
      float* sum = write(sums) + (by_token ? ids[i] : i % length) * hidden;
      for (std::int64_t c = 0; c < hidden; ++c) sum[c] += g[c];
    }
    return sums;
  }
};

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets) {
    const Guard guard;
    context->save_for_backward({logits, targets});
    const float loss = kernels::cross_entropy(read(to_float(logits)), targets.data_ptr<std::int64_t>(),
                                              rows_of(logits), columns_of(logits));
    Tensor out = fp32({});
    *write(out) = loss;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Guard guard;
    const variable_list saved = context->get_saved_variables();
    Tensor d_logits = fp32(saved[0].sizes());
    kernels::cross_entropy_grad(read(to_float(saved[0])), saved[1].data_ptr<std::int64_t>(),
                                *read(gradients[0]), write(d_logits), rows_of(d_logits), columns_of(d_logits),
                                dtype_of(saved[0].scalar_type()));
    return {to_type(d_logits, saved[0].scalar_type()), Tensor()};
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
  Tensor out = fp32(dense.sizes());
  widen(dense.data_ptr(), dtype_of(dense.scalar_type()), write(out), static_cast<std::size_t>(out.numel()));
  return out;
}

Tensor to_type(const Tensor& fp32_tensor, at::ScalarType type) {
  if (type == at::kFloat) return fp32_tensor;
  Tensor out = at::empty(fp32_tensor.sizes(), fp32_tensor.options().dtype(type));
  narrow(read(fp32_tensor), dtype_of(type), out.data_ptr(), static_cast<std::size_t>(out.numel()));
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
