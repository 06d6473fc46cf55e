// A backward in two parts gives the bits of one, and its second part is where the weights' products are computed.
#include "engine/model/deferred.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/model/ops.h"

namespace plumbline {
namespace {

at::Tensor leaf(std::vector<std::int64_t> shape, at::ScalarType type) {
  return (at::rand(shape) - 0.5).to(type).requires_grad_(true);
}

// One of each operation; the matrix is used twice.
struct Net {
  explicit Net(at::ScalarType type)
      : table(leaf({11, 8}, type)),
        positions(leaf({6, 8}, type)),
        norm(leaf({8}, type)),
        norm_bias(leaf({8}, type)),
        matrix(leaf({8, 8}, type)),
        bias(leaf({8}, type)),
        head(leaf({11, 8}, type)) {}

  at::Tensor loss(const at::Tensor& tokens) const {
    at::Tensor x = ops::embedding(tokens, table, positions);
    x = ops::layer_norm(x, norm, norm_bias);
    x = ops::linear_gelu(x, matrix, bias);
    x = ops::linear_add(x, matrix, bias, x);
    return ops::cross_entropy(ops::linear(x, head), tokens);
  }
  std::vector<at::Tensor> leaves() const { return {table, positions, norm, norm_bias, matrix, bias, head}; }

  at::Tensor table, positions, norm, norm_bias, matrix, bias, head;
};

TEST(Deferred, BothPartsGiveTheBitsOfOneBackward) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    at::manual_seed(7);
    const Net net(type);
    const at::Tensor tokens = at::randint(0, 11, {2, 6}, at::TensorOptions().dtype(at::kLong));
    torch::autograd::backward({net.loss(tokens)}, {});
    std::vector<at::Tensor> whole;
    for (at::Tensor one : net.leaves()) {
      whole.push_back(one.grad().clone());
      one.mutable_grad().reset();
    }
    DeferredGradients deferred;
    const at::Tensor loss = net.loss(tokens);
    {
      const DeferScope scope(deferred);
      torch::autograd::backward({loss}, {});
    }
    EXPECT_EQ(DeferredGradients::current(), nullptr);
    EXPECT_EQ(deferred.size(), 7u);  // matrix and bias twice, head, table, positions
    for (const at::Tensor& one : {net.table, net.positions, net.matrix, net.bias, net.head})
      EXPECT_FALSE(one.grad().defined());
    EXPECT_TRUE(net.norm.grad().defined());
    deferred.run();
    EXPECT_TRUE(deferred.empty());
    const std::vector<at::Tensor> leaves = net.leaves();
    for (std::size_t i = 0; i < leaves.size(); ++i) EXPECT_TRUE(at::equal(leaves[i].grad(), whole[i])) << i;
  }
}

// A weight that is made of another one cannot wait: its gradient flows on.
TEST(Deferred, OnlyLeavesWait) {
  const at::Tensor base = leaf({4, 4}, at::kFloat);
  const at::Tensor x = leaf({1, 2, 4}, at::kFloat);
  DeferredGradients deferred;
  const at::Tensor out = ops::linear(x, base * 2.0).sum();
  const DeferScope scope(deferred);
  torch::autograd::backward({out}, {});
  EXPECT_TRUE(deferred.empty());
  EXPECT_TRUE(base.grad().defined());
}

}  // namespace
}  // namespace plumbline
