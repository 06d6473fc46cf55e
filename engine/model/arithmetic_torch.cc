// LibTorch's arithmetic. On a device its operators work in the run's precision: products accumulate in fp32, the others
// compute in fp32, and each result is rounded once. On the CPU 16 bits go by way of fp32: not every LibTorch has these
// operators for them, and the values are the same up to the order of sums.
#include <atomic>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "engine/model/arithmetic.h"

namespace plumbline {
namespace {

using at::Tensor;

constexpr double kNormEpsilon = 1e-5;

std::int64_t columns_of(const Tensor& tensor) { return tensor.size(-1); }
Tensor matrix(const Tensor& tensor) { return tensor.reshape({-1, columns_of(tensor)}); }

// What an operator takes, and what it gave.
Tensor in(const Tensor& tensor) {
  const bool wide = !tensor.device().is_cpu() || tensor.scalar_type() == at::kFloat;
  return wide ? tensor : tensor.to(at::kFloat);
}
Tensor out(const Tensor& tensor, at::ScalarType type) {
  return tensor.scalar_type() == type ? tensor : tensor.to(type);
}

// alpha a b, rounded once, of batches of matrices. LibTorch 1.13 multiplies what is in the unused summand by beta on
// the CPU, NaN or not; a device's library does not look at it.
Tensor batched(const Tensor& a, const Tensor& b, double alpha) {
  const Tensor left = in(a), right = in(b);
  if (left.device().is_cpu()) return out(at::bmm(left, right).mul_(alpha), a.scalar_type());
  const Tensor unused = at::empty({left.size(0), left.size(1), right.size(2)}, left.options());
  return out(at::baddbmm(unused, left, right, 0.0, alpha), a.scalar_type());
}

// Queries, keys and values of all heads, each [batch * heads, length, depth].
struct Heads {
  Tensor q, k, v;
  std::int64_t batch = 0, length = 0, depth = 0;
  double scale = 0.0;

  Heads(const Tensor& qkv, std::int64_t heads)
      : batch(qkv.size(0)), length(qkv.size(1)), depth(qkv.size(2) / (3 * heads)) {
    const Tensor parts = qkv.view({batch, length, 3, heads, depth}).permute({2, 0, 3, 1, 4});
    const auto part = [&](std::int64_t i) { return parts.select(0, i).reshape({-1, length, depth}); };
    q = part(0);
    k = part(1);
    v = part(2);
    scale = 1.0 / std::sqrt(static_cast<double>(depth));
  }
};

Tensor split_heads(const Tensor& x, std::int64_t heads) {
  const std::int64_t batch = x.size(0), length = x.size(1), depth = x.size(2) / heads;
  return x.reshape({batch, length, heads, depth}).permute({0, 2, 1, 3}).reshape({-1, length, depth});
}

class TorchArithmetic final : public Arithmetic {
 public:
  Tensor operand(const Tensor& tensor) const override { return tensor; }
  Tensor stored(const Tensor& operand, at::ScalarType type) const override { return out(operand, type); }

  Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                at::ScalarType type) const override {
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    const Tensor rows = in(matrix(x)), turned = in(weight).t();
    const Tensor y = bias.defined() ? at::addmm(in(bias), rows, turned) : at::mm(rows, turned);
    return out(y, type).view(shape);
  }

  Tensor product(const Tensor& a, const Tensor& b) const override {
    return out(at::mm(in(a), in(b)), a.scalar_type());
  }
  Tensor transposed_product(const Tensor& a, const Tensor& b) const override {
    return out(at::mm(in(a).t(), in(b)), a.scalar_type());
  }
  Tensor column_sums(const Tensor& rows) const override {
    return out(in(rows).sum(at::IntArrayRef{0}), rows.scalar_type());
  }

  Tensor add(const Tensor& a, const Tensor& b, at::ScalarType type) const override {
    return out(at::add(in(a), in(b)), type);
  }
  Tensor gelu(const Tensor& x, at::ScalarType type) const override {
    return out(at::gelu(in(x), "tanh"), type);
  }
  Tensor gelu_grad(const Tensor& x, const Tensor& gradient, at::ScalarType type) const override {
    return out(at::gelu_backward(in(gradient), in(x), "tanh"), type);
  }

  Normed layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) const override {
    auto [y, mean, rstd] = at::native_layer_norm(in(x), {columns_of(x)}, in(weight), in(bias), kNormEpsilon);
    return {out(y, x.scalar_type()), mean, rstd};
  }

  NormGradient layer_norm_grad(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& gradient) const override {
    const at::ScalarType type = x.scalar_type();
    const Tensor wide = in(weight);
    auto [dx, dw, db] = at::native_layer_norm_backward(in(gradient), in(x), {columns_of(x)}, mean, rstd, wide,
                                                       wide, {true, true, true});
    return {out(dx, type), out(dw, type), out(db, type)};
  }

  Attended attention(const Tensor& qkv, std::int64_t heads) const override {
    const at::ScalarType type = qkv.scalar_type();
    const Heads h(qkv, heads);
    const Tensor scores = batched(h.q, h.k.transpose(1, 2), h.scale);
    const Tensor above =
        at::ones({h.length, h.length}, qkv.options().dtype(at::kBool).requires_grad(false)).triu(1);
    const Tensor masked = in(scores).masked_fill(above, -std::numeric_limits<double>::infinity());
    const Tensor probabilities = out(at::softmax(masked, -1), type);
    const Tensor mixed = batched(probabilities, h.v, 1.0);
    return {join_heads(mixed, h, heads), probabilities.view({h.batch, heads, h.length, h.length})};
  }

  Tensor attention_grad(const Tensor& qkv, const Tensor& probabilities, const Tensor& gradient,
                        std::int64_t heads) const override {
    const at::ScalarType type = qkv.scalar_type();
    const Heads h(qkv, heads);
    const Tensor p = probabilities.view({-1, h.length, h.length});
    const Tensor g = split_heads(gradient, heads);
    const Tensor dp = batched(g, h.v.transpose(1, 2), 1.0);
    const Tensor wide = in(p);
    const Tensor ds = out(at::_softmax_backward_data(in(dp), wide, -1, wide.scalar_type()), type);
    const Tensor dq = batched(ds, h.k, h.scale);
    const Tensor dk = batched(ds.transpose(1, 2), h.q, h.scale);
    const Tensor dv = batched(p.transpose(1, 2), g, 1.0);
    return at::cat({join_heads(dq, h, heads), join_heads(dk, h, heads), join_heads(dv, h, heads)}, 2);
  }

  Tensor embedding(const Tensor& tokens, const Tensor& table, const Tensor& positions) const override {
    const Tensor places = positions.narrow(0, 0, tokens.size(1));
    return out(at::add(in(at::embedding(table, tokens)), in(places)), table.scalar_type());
  }

  // In fp32 whatever the precision: a token may come often.
  Tensor sums_by_token(const Tensor& tokens, const Tensor& gradient, std::int64_t count) const override {
    return at::embedding_dense_backward(gradient.to(at::kFloat), tokens, count, -1, false);
  }
  Tensor sums_by_place(const Tensor& gradient, std::int64_t count) const override {
    const Tensor sums = gradient.to(at::kFloat).sum(at::IntArrayRef{0});
    return at::constant_pad_nd(sums, {0, 0, 0, count - sums.size(0)});
  }

  Tensor cross_entropy(const Tensor& logits, const Tensor& targets) const override {
    return at::cross_entropy_loss(matrix(logits).to(at::kFloat), targets.reshape({-1}));
  }

  Tensor cross_entropy_grad(const Tensor& logits, const Tensor& targets, const Tensor& scale) const override {
    const Tensor wide = matrix(logits).to(at::kFloat);
    const Tensor classes = at::arange(wide.size(1), targets.options());
    const Tensor hit = targets.reshape({-1, 1}).eq(classes).to(at::kFloat);
    const Tensor each = scale / static_cast<double>(wide.size(0));
    return out((at::softmax(wide, -1) - hit) * each, logits.scalar_type()).view(logits.sizes());
  }

 private:
  static Tensor join_heads(const Tensor& x, const Heads& h, std::int64_t heads) {
    return x.view({h.batch, heads, h.length, h.depth})
        .permute({0, 2, 1, 3})
        .reshape({h.batch, h.length, heads * h.depth});
  }
};

std::atomic<bool> g_libtorch{false};

}  // namespace

const Arithmetic& libtorch_arithmetic() {
  static const TorchArithmetic only;
  return only;
}

void use_libtorch_arithmetic(bool on) { g_libtorch = on; }

const Arithmetic& arithmetic_for(const at::Tensor& tensor) {
  return !tensor.device().is_cpu() || g_libtorch ? libtorch_arithmetic() : engine_arithmetic();
}

}  // namespace plumbline
