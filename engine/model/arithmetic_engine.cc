// The engine's arithmetic: kernels.h on dense fp32 arrays in host memory.
#include <ATen/ATen.h>

#include "engine/model/arithmetic.h"
#include "engine/model/kernels.h"
#include "engine/model/ops.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"

namespace plumbline {
namespace {

using at::Tensor;
using ops::to_float;
using ops::to_type;

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

kernels::AttentionShape shape_of(const Tensor& qkv, std::int64_t heads) {
  return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
}

class EngineArithmetic final : public Arithmetic {
 public:
  Tensor operand(const Tensor& tensor) const override { return to_float(tensor); }
  Tensor stored(const Tensor& operand, at::ScalarType type) const override { return to_type(operand, type); }

  Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                at::ScalarType type) const override {
    Tensor out = fp32(with_columns(x, weight.size(0)));
    Tensor flat = matrix(out);
    at::mm_out(flat, matrix(to_float(x)), to_float(weight).t());
    const Tensor wide_bias = bias.defined() ? to_float(bias) : Tensor();
    kernels::add_bias(write(out), bias.defined() ? read(wide_bias) : nullptr, rows_of(out), columns_of(out),
                      dtype_of(type));
    return out;
  }

  Tensor product(const Tensor& a, const Tensor& b) const override {
    Tensor out = fp32({a.size(0), b.size(1)});
    at::mm_out(out, to_float(a), to_float(b));
    return out;
  }

  Tensor transposed_product(const Tensor& a, const Tensor& b) const override {
    Tensor out = fp32({a.size(1), b.size(1)});
    at::mm_out(out, to_float(a).t(), to_float(b));
    return out;
  }

  Tensor column_sums(const Tensor& rows) const override {
    Tensor out = fp32({rows.size(1)});
    kernels::column_sums(read(rows), write(out), rows.size(0), rows.size(1));
    return out;
  }

  Tensor add(const Tensor& a, const Tensor& b, at::ScalarType type) const override {
    kernels::add(write(a), read(to_float(b)), a.numel(), dtype_of(type));
    return a;
  }

  Tensor gelu(const Tensor& x, at::ScalarType type) const override {
    Tensor out = fp32(x.sizes());
    kernels::gelu(read(x), write(out), x.numel(), dtype_of(type));
    return out;
  }

  Tensor gelu_grad(const Tensor& x, const Tensor& gradient, at::ScalarType type) const override {
    Tensor out = fp32(gradient.sizes());
    kernels::gelu_grad(read(to_float(x)), read(gradient), write(out), out.numel(), dtype_of(type));
    return out;
  }

  Normed layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) const override {
    const at::ScalarType type = x.scalar_type();
    Tensor out = fp32(x.sizes());
    const Tensor moments = fp32({2, rows_of(x)});
    kernels::layer_norm(read(to_float(x)), read(to_float(weight)), read(to_float(bias)), write(out),
                        write(moments), write(moments) + rows_of(x), rows_of(x), columns_of(x),
                        dtype_of(type));
    return {to_type(out, type), moments[0], moments[1]};
  }

  NormGradient layer_norm_grad(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& gradient) const override {
    const at::ScalarType type = x.scalar_type();
    Tensor dx = fp32(x.sizes());
    Tensor dw = fp32({columns_of(x)});
    Tensor db = fp32({columns_of(x)});
    kernels::layer_norm_grad(read(to_float(x)), read(to_float(weight)), read(mean), read(rstd),
                             read(to_float(gradient)), write(dx), write(dw), write(db), rows_of(x),
                             columns_of(x), dtype_of(type));
    return {to_type(dx, type), to_type(dw, type), to_type(db, type)};
  }

  Attended attention(const Tensor& qkv, std::int64_t heads) const override {
    const at::ScalarType type = qkv.scalar_type();
    const kernels::AttentionShape shape = shape_of(qkv, heads);
    Tensor out = fp32({shape.batch, shape.length, heads * shape.depth});
    Tensor probabilities = fp32({shape.batch, heads, shape.length, shape.length});
    kernels::attention(shape, read(to_float(qkv)), write(out), write(probabilities), dtype_of(type));
    return {to_type(out, type), to_type(probabilities, type)};
  }

  Tensor attention_grad(const Tensor& qkv, const Tensor& probabilities, const Tensor& gradient,
                        std::int64_t heads) const override {
    const at::ScalarType type = qkv.scalar_type();
    Tensor d_qkv = fp32(qkv.sizes());
    kernels::attention_grad(shape_of(qkv, heads), read(to_float(qkv)), read(to_float(probabilities)),
                            read(to_float(gradient)), write(d_qkv), dtype_of(type));
    return to_type(d_qkv, type);
  }

  Tensor embedding(const Tensor& tokens, const Tensor& table, const Tensor& positions) const override {
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
    return to_type(out, table.scalar_type());
  }

  Tensor sums_by_token(const Tensor& tokens, const Tensor& gradient, std::int64_t count) const override {
    const std::int64_t hidden = columns_of(gradient);
    const Tensor sums = at::zeros({count, hidden}, gradient.options());
    const std::int64_t* ids = tokens.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < tokens.numel(); ++i)
      add_row(sums, ids[i], read(gradient) + i * hidden, hidden);
    return sums;
  }

  Tensor sums_by_place(const Tensor& gradient, std::int64_t count) const override {
    const std::int64_t hidden = columns_of(gradient), length = gradient.size(1);
    const Tensor sums = at::zeros({count, hidden}, gradient.options());
    for (std::int64_t i = 0; i < rows_of(gradient); ++i)
      add_row(sums, i % length, read(gradient) + i * hidden, hidden);
    return sums;
  }

  Tensor cross_entropy(const Tensor& logits, const Tensor& targets) const override {
    Tensor out = fp32({});
    *write(out) = kernels::cross_entropy(read(to_float(logits)), targets.data_ptr<std::int64_t>(),
                                         rows_of(logits), columns_of(logits));
    return out;
  }

  Tensor cross_entropy_grad(const Tensor& logits, const Tensor& targets, const Tensor& scale) const override {
    Tensor d_logits = fp32(logits.sizes());
    kernels::cross_entropy_grad(read(to_float(logits)), targets.data_ptr<std::int64_t>(), *read(scale),
                                write(d_logits), rows_of(d_logits), columns_of(d_logits),
                                dtype_of(logits.scalar_type()));
    return to_type(d_logits, logits.scalar_type());
  }

 private:
  static void add_row(const Tensor& sums, std::int64_t row, const float* values, std::int64_t hidden) {
    float* sum = write(sums) + row * hidden;
    for (std::int64_t c = 0; c < hidden; ++c) sum[c] += values[c];
  }
};

}  // namespace

const Arithmetic& engine_arithmetic() {
  static const EngineArithmetic only;
  return only;
}

}  // namespace plumbline
