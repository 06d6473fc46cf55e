// The data-parallel wrapper's buffers: views, borrowed memory, buckets, accumulation.
#include "engine/optim/grad_buffer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/model/precision.h"
#include "engine/model/tensors.h"
#include "engine/runtime/half.h"

namespace plumbline {
namespace {

ParameterPtr parameter(const std::string& name, std::vector<std::int64_t> shape, at::ScalarType type) {
  auto made = std::make_shared<Parameter>();
  made->name = name;
  made->value = at::zeros(shape, at::TensorOptions().dtype(type));
  float next = 0.25f + static_cast<float>(name.size());
  for (std::int64_t i = 0; i < made->value.numel(); ++i) made->value.view({-1})[i] = next += 0.5f;
  made->value.requires_grad_(true);
  return made;
}

GradBufferOptions sharded(int shards, std::int64_t bucket_size = 0) {
  GradBufferOptions options;
  options.layout.shards = shards;
  options.layout.bucket_size = bucket_size;
  return options;
}

std::unique_ptr<GradBuffer> made(std::vector<ParameterPtr> params, const GradBufferOptions& options) {
  Result<std::unique_ptr<GradBuffer>> buffer = GradBuffer::create(std::move(params), options);
  EXPECT_TRUE(buffer) << buffer.error().text();
  return std::move(*buffer);
}

// A value made from 16 random bits; infinities and NaNs are among them.
float drawn_value(std::uint16_t bits, int round) {
  return bf16_to_float(bits) * (round == 1 ? -0.75f : 1.5f);
}

TEST(GradBuffer, GradientsAndParametersAreViewsOfTheBuckets) {
  const std::vector<ParameterPtr> params = {parameter("a", {3, 5}, at::kBFloat16),
                                            parameter("bb", {70}, at::kBFloat16),
                                            parameter("ccc", {2, 2}, at::kBFloat16)};
  std::vector<at::Tensor> before;
  for (const ParameterPtr& p : params) before.push_back(p->value.detach().clone());
  const auto buffer = made(params, sharded(2, 70));
  ASSERT_EQ(buffer->buckets(), 2);  // reverse order: ccc and bb, then a
  EXPECT_EQ(buffer->key(), (GradBuffer::Key{DType::kBF16, DType::kF32, false}));
  for (std::size_t i = 0; i < params.size(); ++i) {
    const ParamPlace& place = buffer->layout().place(static_cast<int>(i));
    const std::int64_t at = place.begin - buffer->layout().buckets()[place.bucket].begin;
    EXPECT_EQ(params[i]->bucket, place.bucket);
    EXPECT_EQ(static_cast<void*>(params[i]->main_grad.data_ptr()),
              static_cast<void*>(buffer->gradient_bytes(place.bucket).data() + 4 * at));
    EXPECT_EQ(static_cast<void*>(params[i]->value.data_ptr()),
              static_cast<void*>(buffer->parameter_bytes(place.bucket).data() + 2 * at));
    EXPECT_TRUE(at::equal(params[i]->value, before[i]));
    EXPECT_EQ(params[i]->main_grad.sizes(), params[i]->value.sizes());
    EXPECT_EQ(params[i]->main_grad.scalar_type(), at::kFloat);
    EXPECT_TRUE(params[i]->value.requires_grad() && params[i]->value.is_leaf());
  }
}

TEST(GradBuffer, TheModelComputesWithItsMovedParameters) {
  const std::vector<ParameterPtr> params = {parameter("w", {4}, at::kFloat), parameter("v", {4}, at::kFloat)};
  const at::Tensor handle = params[0]->value;  // as a module holds it
  const auto buffer = made(params, sharded(1));
  // What an all-gather does: the bucket's memory is written, nobody is told.
  const std::int64_t at = buffer->layout().place(0).begin;
  reinterpret_cast<float*>(buffer->parameter_bytes(0).data())[at] = 100.0f;
  at::Tensor loss = (handle * params[1]->value).sum();
  loss.backward();
  EXPECT_EQ(params[1]->value.grad()[0].item<float>(), 100.0f);
  for (const ParameterPtr& p : params) {
    ASSERT_TRUE(accumulate_main_grad(*p, p->value.grad()));
    ASSERT_TRUE(accumulate_main_grad(*p, p->value.grad()));
  }
  EXPECT_TRUE(at::equal(params[0]->main_grad, 2 * params[1]->value.detach()));
}

TEST(GradBuffer, BorrowedGradientMemoryMayBeExchangedUnderTheViews) {
  GradBufferOptions options = sharded(2);
  options.own_memory = false;
  const std::vector<ParameterPtr> params = {parameter("w", {3}, at::kHalf)};
  const auto buffer = made(params, options);
  const at::Tensor view = params[0]->main_grad.view({-1});
  const at::Tensor shard = buffer->shard_gradients(0);
  std::vector<float> first(128, 7.0f), second(128, 8.0f);
  buffer->bind_gradients(0, reinterpret_cast<std::byte*>(first.data()));
  EXPECT_EQ(view[1].item<float>(), 7.0f);
  view[1] = 1.0f;
  EXPECT_EQ(first[1], 1.0f);
  buffer->bind_gradients(0, reinterpret_cast<std::byte*>(second.data()));
  EXPECT_EQ(view[1].item<float>(), 8.0f);
  EXPECT_EQ(shard.numel(), 64);
  buffer->zero();
  EXPECT_EQ(second, std::vector<float>(128, 0.0f));  // padding too
  EXPECT_EQ(first[1], 1.0f);
}

TEST(GradBuffer, BorrowedParameterMemoryKeepsTheValues) {
  const std::vector<ParameterPtr> params = {parameter("w", {3}, at::kHalf)};
  const at::Tensor before = params[0]->value.detach().clone();
  const auto buffer = made(params, sharded(2));
  std::vector<std::uint16_t> memory(128, 0xFFFF);
  buffer->bind_parameters(0, reinterpret_cast<std::byte*>(memory.data()));
  EXPECT_EQ(params[0]->value.data_ptr(), memory.data());
  EXPECT_TRUE(at::equal(params[0]->value, before));
  EXPECT_EQ(memory[3], 0);  // padding
}

TEST(GradBuffer, OwnMemoryLivesAsLongAsAView) {
  const ParameterPtr p = parameter("w", {3}, at::kFloat);
  const at::Tensor before = p->value.detach().clone();
  made({p}, sharded(4));
  p->main_grad.fill_(2.0);
  EXPECT_TRUE(at::equal(p->value, before));
  EXPECT_EQ(p->main_grad.sum().item<float>(), 6.0f);
}

TEST(GradBuffer, WithoutTheDistributedOptimizerParametersStay) {
  GradBufferOptions options = sharded(3);
  options.layout.distributed = false;
  const ParameterPtr p = parameter("w", {3}, at::kFloat);
  void* const data = p->value.data_ptr();
  const auto buffer = made({p, parameter("v", {4}, at::kFloat)}, options);
  EXPECT_EQ(p->value.data_ptr(), data);
  EXPECT_EQ(buffer->gradient_bytes(0).size(), 4u * 7u);
  EXPECT_EQ(buffer->numel_unpadded(), 7);
}

TEST(GradBuffer, OneBufferAPrecisionAndReductionGroup) {
  std::vector<ParameterPtr> params = {parameter("a", {3}, at::kHalf), parameter("b", {3}, at::kFloat),
                                      parameter("c", {3}, at::kHalf), parameter("d", {3}, at::kHalf)};
  params[3]->expert = true;
  GradBufferOptions dense = sharded(4), expert = sharded(2);
  expert.grad_reduce_in_fp32 = false;
  const auto buffers = make_grad_buffers(params, dense, expert);
  ASSERT_TRUE(buffers);
  ASSERT_EQ(buffers->size(), 3u);
  EXPECT_EQ((*buffers)[0]->key(), (GradBuffer::Key{DType::kF16, DType::kF32, false}));
  EXPECT_EQ((*buffers)[0]->params(), (std::vector<ParameterPtr>{params[0], params[2]}));
  EXPECT_EQ((*buffers)[1]->key(), (GradBuffer::Key{DType::kF32, DType::kF32, false}));
  EXPECT_EQ((*buffers)[2]->key(), (GradBuffer::Key{DType::kF16, DType::kF16, true}));
  EXPECT_EQ((*buffers)[2]->layout().options().shards, 2);
  EXPECT_EQ(params[3]->main_grad.scalar_type(), at::kHalf);
}

TEST(GradBuffer, Refusals) {
  const auto error = [](std::vector<ParameterPtr> params, const GradBufferOptions& options) {
    const auto buffer = GradBuffer::create(std::move(params), options);
    return buffer ? std::string() : buffer.error().message;
  };
  GradBufferOptions outside = sharded(2);
  outside.shard = 2;
  EXPECT_NE(error({parameter("a", {1}, at::kFloat)}, outside).find("shard 2 of 2"), std::string::npos);
  EXPECT_NE(error({}, sharded(2)).find("no parameters"), std::string::npos);
  EXPECT_NE(error({parameter("a", {1}, at::kFloat), parameter("b", {1}, at::kHalf)}, sharded(2))
                .find("a and b differ in precision"),
            std::string::npos);
  const auto whole = std::make_shared<Parameter>();
  whole->name = "ids";
  whole->value = at::zeros({2}, at::TensorOptions().dtype(at::kLong));
  EXPECT_NE(error({whole}, sharded(2)).find("ids is not fp32"), std::string::npos);
  EXPECT_FALSE(make_grad_buffers({whole}, sharded(2), sharded(2)));
}

TEST(GradBuffer, ABadGradientIsNamed) {
  GradBufferOptions options = sharded(2, 1);
  options.rank = 5;
  const std::vector<ParameterPtr> params = {parameter("embedding", {1500}, at::kHalf),
                                            parameter("norm", {4}, at::kHalf)};
  const auto buffer = made(params, options);
  EXPECT_TRUE(buffer->check_for_nan(0) && buffer->check_for_nan(1));
  buffer->gradients(0)[100] = std::numeric_limits<float>::infinity();  // padding: of no account
  EXPECT_TRUE(buffer->check_for_nan(0));
  params[0]->main_grad[1200] = std::numeric_limits<float>::quiet_NaN();
  const Status found = buffer->check_for_nan(1);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("rank 5, bucket 1: the gradient of embedding is NaN at element 1200"),
            std::string::npos)
      << found.error().message;
  params[1]->main_grad[0] = -std::numeric_limits<float>::infinity();
  ASSERT_FALSE(buffer->check_for_nan(0));
  EXPECT_NE(buffer->check_for_nan(0).error().message.find("norm is -inf"), std::string::npos);
}

TEST(GradBuffer, ScalingRoundsOnce) {
  GradBufferOptions options = sharded(3);
  options.grad_reduce_in_fp32 = false;
  const ParameterPtr p = parameter("w", {3}, at::kBFloat16);
  const auto buffer = made({p}, options);
  p->main_grad.fill_(5.0);
  buffer->scale(0, 1.0f / 3.0f);
  EXPECT_EQ(p->main_grad[0].item<float>(), round_to(DType::kBF16, 5.0f * (1.0f / 3.0f)));
}

// Sums in fp32, rounded once, against element-wise arithmetic of another kind (half.h by round_to).
RC_GTEST_PROP(GradBufferProperty, AccumulationIsFp32, ()) {
  const auto types = rc::gen::element(at::kFloat, at::kHalf, at::kBFloat16);
  const at::ScalarType value_type = *types, gradient_type = *types;
  GradBufferOptions options = sharded(*rc::gen::inRange(1, 5));
  options.grad_reduce_in_fp32 = *rc::gen::arbitrary<bool>();
  const auto bits = *rc::gen::container<std::vector<std::uint16_t>>(rc::gen::arbitrary<std::uint16_t>());
  const auto count = static_cast<std::int64_t>(bits.size());
  const ParameterPtr p = parameter("w", {count}, value_type);
  const auto buffer = made({p}, options);
  std::vector<float> expected(bits.size(), 0.0f);
  const DType kept = dtype_of(p->main_grad.scalar_type());
  for (int round = 0; round < 3; ++round) {
    at::Tensor gradient = at::zeros({count}, at::TensorOptions().dtype(at::kFloat));
    for (std::int64_t i = 0; i < count; ++i) {
      const float drawn = drawn_value(bits[static_cast<std::size_t>(i)], round);
      gradient[i] = drawn;
      float& sum = expected[static_cast<std::size_t>(i)];
      sum = round_to(kept, sum + round_to(dtype_of(gradient_type), drawn));
    }
    RC_ASSERT(accumulate_main_grad(*p, gradient.to(gradient_type)).has_value());
  }
  const at::Tensor sums = p->main_grad.to(at::kFloat).contiguous();
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = expected[static_cast<std::size_t>(i)], got = sums[i].item<float>();
    const bool same = std::isnan(sum) ? std::isnan(got) : std::memcmp(&sum, &got, sizeof(sum)) == 0;
    RC_ASSERT(same);
  }
}

TEST(GradBuffer, AGradientOfAnotherSizeIsRefused) {
  const ParameterPtr p = parameter("w", {3}, at::kFloat);
  const auto buffer = made({p}, sharded(1));
  EXPECT_FALSE(accumulate_main_grad(*p, at::zeros({4})));
  EXPECT_FALSE(accumulate_main_grad(*p, at::zeros({3}, at::kDouble)));
  const at::Tensor strided = at::arange(6, at::kFloat).view({3, 2}).select(1, 1);
  ASSERT_TRUE(accumulate_main_grad(*p, strided));
  EXPECT_TRUE(at::equal(p->main_grad, strided));
}

}  // namespace
}  // namespace plumbline
