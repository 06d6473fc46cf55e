// LibTorch's arithmetic against the engine's: same operations, same roundings, sums in another order.
#include "engine/model/arithmetic.h"

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/base/rng.h"
#include "engine/model/deferred.h"
#include "engine/model/ops.h"
#include "engine/model/stage.h"

namespace plumbline {
namespace {

using at::Tensor;
using Function = std::function<Tensor(const std::vector<Tensor>&)>;

std::set<std::string>* g_called = nullptr;
std::unique_ptr<at::ObserverContext> note_operator(const at::RecordFunction& function) {
  g_called->insert(function.name());
  return nullptr;
}

struct WithLibtorch {
  WithLibtorch() { use_libtorch_arithmetic(true); }
  ~WithLibtorch() { use_libtorch_arithmetic(false); }
};

Tensor random(at::IntArrayRef shape, const char* name, double size = 1.0) {
  Tensor out = at::empty(shape);
  const CounterRng rng(12, name);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = static_cast<float>(size * rng.normal(static_cast<std::uint64_t>(i)));
  return out;
}

Tensor tokens_below(std::int64_t limit, at::IntArrayRef shape) {
  Tensor out = at::empty(shape, at::kLong);
  const CounterRng rng(12, "tokens");
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(rng.bits(static_cast<std::uint64_t>(i)) %
                                                                static_cast<std::uint64_t>(limit));
  return out;
}

// Output, then the gradients of a weighted sum of it; all as they are stored.
std::vector<Tensor> run(const Function& f, const std::vector<Tensor>& inputs, at::ScalarType type) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.to(type).detach().clone().requires_grad_(true));
  const Tensor out = f(leaves);
  const Tensor weights = out.dim() == 0 ? at::ones({}) : random(out.sizes(), "weights");
  torch::autograd::backward({out}, {weights.to(out.scalar_type())});
  std::vector<Tensor> all{out.detach()};
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

// Half an ulp of the precision, times so many roundings that a stored value goes through.
void expect_alike(const Function& f, const std::vector<Tensor>& inputs) {
  constexpr double kRoundings = 6.0;
  for (const auto& [type, unit] :
       {std::pair{at::kFloat, 0x1p-20}, std::pair{at::kHalf, 0x1p-11}, std::pair{at::kBFloat16, 0x1p-8}}) {
    const std::vector<Tensor> engine = run(f, inputs, type);
    const WithLibtorch scope;
    const std::vector<Tensor> libtorch = run(f, inputs, type);
    ASSERT_EQ(engine.size(), libtorch.size());
    for (std::size_t i = 0; i < engine.size(); ++i) {
      SCOPED_TRACE(c10::toString(type));
      ASSERT_EQ(engine[i].scalar_type(), libtorch[i].scalar_type()) << "tensor " << i;
      ASSERT_EQ(engine[i].sizes(), libtorch[i].sizes()) << "tensor " << i;
      const Tensor a = engine[i].to(at::kFloat), b = libtorch[i].to(at::kFloat);
      const double size = a.abs().max().item<double>();
      EXPECT_LE((a - b).abs().max().item<double>(), kRoundings * unit * (size + 1e-3)) << "tensor " << i;
    }
  }
}

TEST(Arithmetic, LinearIsTheSameOperation) {
  const std::vector<Tensor> in{random({2, 5, 12}, "x"), random({7, 12}, "w", 0.3), random({7}, "b"),
                               random({2, 5, 7}, "r")};
  expect_alike([](const auto& t) { return ops::linear(t[0], t[1], t[2]); }, {in[0], in[1], in[2]});
  expect_alike([](const auto& t) { return ops::linear(t[0], t[1]); }, {in[0], in[1]});
  expect_alike([](const auto& t) { return ops::linear_gelu(t[0], t[1], t[2]); }, {in[0], in[1], in[2]});
  expect_alike([](const auto& t) { return ops::linear_add(t[0], t[1], t[2], t[3]); }, in);
}

TEST(Arithmetic, LayerNormIsTheSameOperation) {
  for (const std::int64_t width : {5, 16, 67}) {
    expect_alike([](const auto& t) { return ops::layer_norm(t[0], t[1], t[2]); },
                 {random({3, 4, width}, "x"), random({width}, "w"), random({width}, "b")});
  }
}

TEST(Arithmetic, AttentionIsTheSameOperation) {
  for (const std::int64_t heads : {1, 3}) {
    for (const std::int64_t length : {1, 9, 16}) {
      expect_alike([heads](const auto& t) { return ops::causal_attention(t[0], heads); },
                   {random({2, length, 3 * heads * 4}, "qkv")});
    }
  }
  expect_alike([](const auto& t) { return ops::causal_attention(t[0], t[1], 2); },
               {random({2, 5, 24}, "qkv"), random({2, 3, 16}, "past")});
}

TEST(Arithmetic, EmbeddingIsTheSameOperation) {
  const Tensor tokens = tokens_below(11, {3, 6});
  expect_alike([&](const auto& t) { return ops::embedding(tokens, t[0], t[1]); },
               {random({11, 8}, "table"), random({9, 8}, "positions")});
}

TEST(Arithmetic, CrossEntropyIsTheSameOperation) {
  const Tensor targets = tokens_below(13, {3, 6});
  expect_alike([&](const auto& t) { return ops::cross_entropy(t[0], targets); },
               {random({3, 6, 13}, "logits", 2.0)});
}

RunConfig small_model() {
  RunConfig config;
  config.model.layers = 3;
  config.model.hidden = 16;
  config.model.ffn_hidden = 64;
  config.model.heads = 2;
  config.model.seq_length = 12;
  config.train.micro_batch_size = 2;
  config.parallel.pp = 3;
  return config;
}

// The operators that a stage calls on a device must not make the host wait for it: none may bring a value to the host,
// or have a result whose size depends on values.
TEST(Arithmetic, AStageNeverWaitsForTheDevice) {
  const RunConfig config = small_model();
  const ModelFamily& family = **find_model("gpt");
  ASSERT_TRUE(family.on_device);
  std::set<std::string> called;
  g_called = &called;
  const WithLibtorch scope;
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(note_operator));
  for (const int stage : {0, 1, 2}) {
    const std::unique_ptr<Stage> made = family.make_stage({stage, 3, &config});
    const Batch batch{tokens_below(256, {2, 12}), tokens_below(256, {2, 12})};
    Tensor input;
    if (stage > 0) input = random({2, 12, 16}, "input").requires_grad_(true);
    const Tensor output = made->forward(input, batch);
    torch::autograd::backward({output}, {at::ones_like(output)});
    for (const StageParameter& parameter : made->parameters())
      ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
  }
  at::removeCallback(handle);
  EXPECT_TRUE(called.contains("aten::mm") && called.contains("aten::embedding")) << "the observer sees them";
  for (const char* waits : {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal",
                            "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::allclose"})
    EXPECT_FALSE(called.contains(waits)) << waits;
}

// LibTorch runs the backward of a device's tensors in a thread of its own, under the caller's ThreadLocalState.
TEST(Deferred, ReachesTheThreadsThatLibTorchRunsBackwardsIn) {
  DeferredGradients put_off;
  const Tensor weight = at::ones({2}).requires_grad_(true);
  at::ThreadLocalState state;
  {
    const DeferScope scope(put_off);
    state = at::ThreadLocalState();
  }
  EXPECT_EQ(nullptr, DeferredGradients::current());
  std::thread([&] {
    EXPECT_EQ(nullptr, DeferredGradients::current());
    const at::ThreadLocalStateGuard guard(state);
    EXPECT_EQ(&put_off, DeferredGradients::current());
    EXPECT_FALSE(weight_gradient(weight, [] { return at::ones({2}); }).defined());
  }).join();
  EXPECT_EQ(1u, put_off.size());
}

TEST(Deferred, ScopesNest) {
  DeferredGradients outer, inner;
  const DeferScope first(outer);
  {
    const DeferScope second(inner);
    EXPECT_EQ(&inner, DeferredGradients::current());
  }
  EXPECT_EQ(&outer, DeferredGradients::current());
}

}  // namespace
}  // namespace plumbline
