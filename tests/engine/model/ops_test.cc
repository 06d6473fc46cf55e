// Each operation against LibTorch's own autograd in fp32, and against its fp32 self in the 16-bit precisions.
#include "engine/model/ops.h"

#include <cmath>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/base/rng.h"

namespace plumbline {
namespace {

using at::Tensor;
using Function = std::function<Tensor(const std::vector<Tensor>&)>;

Tensor random(at::IntArrayRef shape, const char* name, double size = 1.0) {
  Tensor out = at::empty(shape);
  const CounterRng rng(11, name);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data_ptr<float>()[i] = static_cast<float>(size * rng.normal(static_cast<std::uint64_t>(i)));
  }
  return out;
}

// Output and all gradients of a weighted sum of the output.
std::vector<Tensor> run(const Function& f, const std::vector<Tensor>& inputs, at::ScalarType type) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.to(type).detach().clone().requires_grad_(true));
  const Tensor out = f(leaves);
  const Tensor weights = out.dim() == 0 ? at::ones({}) : random(out.sizes(), "weights");
  torch::autograd::backward({out}, {weights.to(out.scalar_type())});
  std::vector<Tensor> all{out.detach().to(at::kFloat)};
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad().to(at::kFloat));
  return all;
}

void expect_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double size = b[i].abs().max().item<double>();
    const double difference = (a[i] - b[i]).abs().max().item<double>();
    EXPECT_LE(difference, tolerance * (size + 1e-3)) << "tensor " << i;
  }
}

// fp32: up to 64 terms a sum and a few roundings an element; 16 bits: each stored tensor is rounded once,
// some twice.
void check(const Function& ours, const Function& libtorch, const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> exact = run(libtorch, inputs, at::kFloat);
  expect_close(run(ours, inputs, at::kFloat), exact, 1e-5);
  expect_close(run(ours, inputs, at::kHalf), exact, 16 * 0x1p-11);
  expect_close(run(ours, inputs, at::kBFloat16), exact, 16 * 0x1p-8);
}

TEST(Ops, Linear) {
  const std::vector<Tensor> inputs{random({2, 5, 12}, "x"), random({7, 12}, "w"), random({7}, "b")};
  check([](const auto& in) { return ops::linear(in[0], in[1], in[2]); },
        [](const auto& in) { return at::linear(in[0], in[1], in[2]); }, inputs);
  check([](const auto& in) { return ops::linear(in[0], in[1]); },
        [](const auto& in) { return at::linear(in[0], in[1]); }, {inputs[0], inputs[1]});
}

TEST(Ops, LinearGelu) {
  check([](const auto& in) { return ops::linear_gelu(in[0], in[1], in[2]); },
        [](const auto& in) { return at::gelu(at::linear(in[0], in[1], in[2]), "tanh"); },
        {random({3, 4, 10}, "x"), random({21, 10}, "w", 0.5), random({21}, "b")});
}

TEST(Ops, LinearAdd) {
  check([](const auto& in) { return ops::linear_add(in[0], in[1], in[2], in[3]); },
        [](const auto& in) { return at::linear(in[0], in[1], in[2]) + in[3]; },
        {random({3, 4, 10}, "x"), random({6, 10}, "w"), random({6}, "b"), random({3, 4, 6}, "r")});
}

TEST(Ops, LayerNorm) {
  for (const std::int64_t width : {5, 16, 67}) {
    check([](const auto& in) { return ops::layer_norm(in[0], in[1], in[2]); },
          [width](const auto& in) { return at::layer_norm(in[0], {width}, in[1], in[2], 1e-5); },
          {random({3, 4, width}, "x", 2.0), random({width}, "w"), random({width}, "b")});
  }
}

Tensor plain_attention(const Tensor& qkv, std::int64_t heads) {
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), depth = qkv.size(2) / 3 / heads;
  const std::vector<Tensor> parts =
      qkv.view({batch, length, 3, heads, depth}).permute({2, 0, 3, 1, 4}).unbind(0);
  Tensor scores = at::matmul(parts[0], parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(depth));
  const Tensor future = at::ones({length, length}, at::kBool).triu(1);
  scores = scores.masked_fill(future, -INFINITY);
  return at::matmul(at::softmax(scores, -1), parts[2])
      .transpose(1, 2)
      .reshape({batch, length, heads * depth});
}

TEST(Ops, CausalAttention) {
  struct Shape {
    std::int64_t batch, length, heads, depth;
  };
  // Whole tiles of 4 x 16, ragged ones, and a single position.
  for (const Shape s : {Shape{2, 16, 2, 16}, Shape{1, 13, 3, 5}, Shape{2, 37, 1, 20}, Shape{1, 1, 2, 4},
                        Shape{1, 64, 2, 32}}) {
    check([s](const auto& in) { return ops::causal_attention(in[0], s.heads); },
          [s](const auto& in) { return plain_attention(in[0], s.heads); },
          {random({s.batch, s.length, 3 * s.heads * s.depth}, "qkv")});
  }
}

TEST(Ops, Embedding) {
  const Tensor tokens = at::tensor({0, 3, 3, 1, 2, 3}, at::kLong).view({2, 3});
  check([&](const auto& in) { return ops::embedding(tokens, in[0], in[1]); },
        [&](const auto& in) { return at::embedding(in[0], tokens) + in[1].slice(0, 0, 3); },
        {random({4, 6}, "table"), random({5, 6}, "positions")});
}

TEST(Ops, CrossEntropy) {
  const Tensor targets = at::tensor({0, 3, 9, 1}, at::kLong);
  check(
      [&](const auto& in) {
        return ops::cross_entropy(in[0].view({2, 2, 11}), targets.view({2, 2}));
      },
      [&](const auto& in) { return at::cross_entropy_loss(in[0], targets); },
      {random({4, 11}, "logits", 3.0)});
}

TEST(Ops, AnInfinityStaysVisible) {
  Tensor x = random({1, 2, 4}, "x").to(at::kHalf);
  x.data_ptr<c10::Half>()[0] = INFINITY;
  const Tensor w = random({4, 4}, "w").to(at::kHalf), b = random({4}, "b").to(at::kHalf);
  for (const Tensor& out : {ops::linear(x, w, b), ops::linear_gelu(x, w, b), ops::layer_norm(x, b, b)}) {
    EXPECT_FALSE(at::isfinite(out).all().item<bool>());
  }
}

}  // namespace
}  // namespace plumbline
