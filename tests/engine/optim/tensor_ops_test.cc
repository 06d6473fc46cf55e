// Lists of tensors: the fused path against LibTorch's own operations, and the rules on lists.
#include "engine/optim/tensor_ops.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/optim/arrays.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

using Limits = std::numeric_limits<float>;
using Tensors = std::vector<at::Tensor>;

struct PlainLoop {
  explicit PlainLoop(bool on) { force_plain_tensor_ops(on); }
  ~PlainLoop() { force_plain_tensor_ops(false); }
};

at::Tensor tensor_of(const std::vector<float>& values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kFloat));
}

// A tensor over these values of one of several layouts: flat, with an offset, transposed, every second one.
at::Tensor laid_out(const std::vector<float>& values, int layout) {
  const auto count = static_cast<std::int64_t>(values.size());
  const at::Tensor flat = tensor_of(values);
  if (layout == 1) return at::cat({at::zeros({3}), flat}).slice(0, 3);
  if (layout == 2 && count % 2 == 0) return flat.view({2, count / 2}).t();
  if (layout == 3) {
    const at::Tensor wide = at::zeros({count, 2});
    wide.select(1, 0).copy_(flat);
    return wide.select(1, 0);
  }
  return flat.clone();
}

Tensors some_tensors(at::ScalarType type = at::kFloat) {
  const auto tensors = *rc::gen::inRange(0, 5).as("tensors");
  Tensors list;
  for (int i = 0; i < tensors; ++i) {
    const auto count = *rc::gen::inRange<std::size_t>(0, 600).as("elements");
    const auto kind = *rc::gen::inRange(0, test::kDifficultKinds).as("kind");
    const auto seed = *rc::gen::arbitrary<std::uint32_t>().as("seed");
    const auto layout = *rc::gen::inRange(0, 4).as("layout");
    list.push_back(laid_out(test::difficult_floats(seed, count, kind), layout).to(type));
  }
  return list;
}

Tensors copies(const Tensors& list) {
  Tensors out;
  for (const at::Tensor& one : list) {
    out.push_back(at::empty_strided(one.sizes(), one.strides(), one.options()));
    out.back().copy_(one);
  }
  return out;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.to(at::kFloat).contiguous(), y = b.to(at::kFloat).contiguous();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (!test::same_or_nan(x.data_ptr<float>()[i], y.data_ptr<float>()[i])) return false;
  }
  return true;
}

bool same(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b; }

TEST(TensorOps, UnscaleFusedEqualsThePlainLoop) {
  test::check_cases(1'500, [] {
    const Tensors list = some_tensors();
    const auto factor = *rc::gen::element(1.0f, 0.25f, 0x1p-16f, 0x1p20f).as("factor");
    Tensors fused = copies(list), plain = copies(list);
    ExactSum fused_norm, plain_norm;
    const bool found = unscale_and_check(fused, factor, &fused_norm);
    bool plain_found = false;
    {
      const PlainLoop scope(true);
      plain_found = unscale_and_check(plain, factor, &plain_norm);
    }
    RC_ASSERT(found == plain_found);
    RC_ASSERT(fused_norm == plain_norm);
    RC_ASSERT(same(fused, plain));
  });
}

TEST(TensorOps, EveryTensorIsMultipliedAfterOneWasBad) {
  for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    const Tensors list{tensor_of({2.0f, bad}), at::empty({0}), tensor_of({4.0f})};
    EXPECT_TRUE(unscale_and_check(list, 0.5f));
    EXPECT_EQ(list[0][0].item<float>(), 1.0f);
    EXPECT_EQ(list[2][0].item<float>(), 2.0f);
  }
  EXPECT_FALSE(unscale_and_check({}, 0.5f));
  EXPECT_FALSE(unscale_and_check({at::empty({0}), tensor_of({-0.0f, 1e-45f, 65504.0f})}, 0.5f));
}

TEST(TensorOps, HalfPrecisionGradientsAreRoundedToTheirOwn) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const Tensors list{tensor_of({3.0f, -1.0f}).to(type)};
    ExactSum norm;
    EXPECT_FALSE(unscale_and_check(list, 0.5f, &norm));
    EXPECT_EQ(list[0].scalar_type(), type);
    EXPECT_EQ(list[0][0].item<float>(), 1.5f);
    EXPECT_EQ(norm.value(), 2.5);
    EXPECT_TRUE(unscale_and_check({tensor_of({Limits::infinity()}).to(type)}, 0.5f));
  }
}

TEST(TensorOps, NormsFusedEqualThePlainLoop) {
  test::check_cases(1'000, [] {
    const Tensors list = some_tensors();
    const auto p = *rc::gen::element(2.0, 1.0, 3.5, std::numeric_limits<double>::infinity()).as("p");
    const LocalNorm fused = local_norm(list, p).value();
    const std::int64_t zeros = count_zeros(list);
    const PlainLoop scope(true);
    const LocalNorm plain = local_norm(list, p).value();
    RC_ASSERT(fused.squares == plain.squares);
    RC_ASSERT(same(fused.other, plain.other));
    RC_ASSERT(same(norm_of(fused), norm_of(plain)));
    RC_ASSERT(count_zeros(list) == zeros);
  });
}

TEST(TensorOps, NormOfAnyDivisionIsTheSameBits) {
  test::check_cases(1'000, [] {
    const auto count = *rc::gen::inRange<std::size_t>(1, 500).as("elements");
    const auto kind = *rc::gen::inRange(0, test::kDifficultKinds).as("kind");
    const auto seed = *rc::gen::arbitrary<std::uint32_t>().as("seed");
    const at::Tensor whole = tensor_of(test::difficult_floats(seed, count, kind));
    const LocalNorm expected = local_norm({whole}, 2.0).value();
    ExactSum combined;
    std::int64_t at = 0;
    while (at < whole.numel()) {
      const auto part = *rc::gen::inRange<std::int64_t>(1, 200).as("part");
      combined += local_norm({whole.slice(0, at, at + part)}, 2.0).value().squares;
      at += part;
    }
    RC_ASSERT(combined == expected.squares);
  });
}

TEST(TensorOps, KnownNorms) {
  const Tensors list{tensor_of({3.0f, 0.0f}), at::empty({0}), tensor_of({-4.0f, -0.0f})};
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(norm_of(*local_norm(list, 2.0)), 5.0);
  EXPECT_EQ(norm_of(*local_norm(list, 1.0)), 7.0);
  EXPECT_EQ(norm_of(*local_norm(list, infinity)), 4.0);
  EXPECT_EQ(count_zeros(list), 2);
  for (const double p : {1.0, 2.0, infinity}) EXPECT_EQ(norm_of(*local_norm({}, p)), 0.0) << p;
  const Tensors bad{tensor_of({Limits::quiet_NaN()}), tensor_of({1.0f})};
  for (const double p : {1.0, 2.0, infinity}) EXPECT_TRUE(std::isnan(norm_of(*local_norm(bad, p)))) << p;
  // Squares beyond fp32.
  EXPECT_EQ(norm_of(*local_norm({tensor_of({3e38f, 2e38f})}, 2.0)),
            std::sqrt(static_cast<double>(3e38f) * static_cast<double>(3e38f) +
                      static_cast<double>(2e38f) * static_cast<double>(2e38f)));
}

TEST(TensorOps, NormsThatAreRefused) {
  const Tensors list{tensor_of({1.0f})};
  for (const double p : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    const auto norm = local_norm(list, p);
    ASSERT_FALSE(norm.has_value());
    EXPECT_NE(norm.error().message.find("above 0"), std::string::npos);
  }
  const auto half = local_norm({list[0], list[0].to(at::kHalf)}, 2.0);
  ASSERT_FALSE(half.has_value());
  EXPECT_NE(half.error().message.find("gradient 1 is Half"), std::string::npos) << half.error().message;
}

TEST(TensorOps, ClippingNeverGrowsAGradient) {
  EXPECT_EQ(clip_coefficient(10.0, 0.0), 1.0f);
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_coefficient(4.0, 1.0), static_cast<float>(1.0 / (4.0 + 1e-6)));
  EXPECT_EQ(clip_coefficient(std::numeric_limits<double>::quiet_NaN(), 1.0), 1.0f);
  test::check_cases(10'000, [] {
    const auto gradient = *rc::gen::container<std::vector<float>>(test::any_float());
    const auto max_norm = std::fabs(static_cast<double>(*test::finite_float()));
    const Tensors list{tensor_of(gradient)};
    const float factor = clip_coefficient(norm_of(*local_norm(list, 2.0)), max_norm);
    RC_ASSERT(factor >= 0.0f);
    RC_ASSERT(factor <= 1.0f);
    scale_gradients(list, factor);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (std::isnan(gradient[i]) || std::isinf(gradient[i])) continue;
      RC_ASSERT(std::fabs(list[0].data_ptr<float>()[i]) <= std::fabs(gradient[i]));
    }
  });
}

TEST(MultiTensorCopy, FusedEqualsThePlainLoop) {
  test::check_cases(2'000, [] {
    const auto type = [](const char* name) {
      return *rc::gen::element(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble).as(name);
    };
    const Tensors source = some_tensors(type("source"));
    const auto target_type = type("target");
    Tensors fused, plain;
    for (const at::Tensor& one : source) {
      fused.push_back(at::zeros(one.sizes(), one.options().dtype(target_type)));
      plain.push_back(fused.back().clone());
    }
    std::int32_t overflow = 0, plain_overflow = 0;
    RC_ASSERT(multi_tensor_copy_this_to_that(source, fused, &overflow).has_value());
    {
      const PlainLoop scope(true);
      RC_ASSERT(multi_tensor_copy_this_to_that(source, plain, &plain_overflow).has_value());
    }
    RC_ASSERT(same(fused, plain));
    RC_ASSERT(overflow == plain_overflow);
  });
}

TEST(MultiTensorCopy, OverflowIsSetAndOtherwiseLeftAlone) {
  for (const bool plain : {false, true}) {
    const PlainLoop scope(plain);
    const Tensors target{at::zeros({2}, at::kHalf), at::zeros({1}, at::kHalf)};
    const auto flag = [&](float value, std::int32_t before) {
      std::int32_t overflow = before;
      const Tensors source{tensor_of({1.0f, 2.0f}), tensor_of({value})};
      EXPECT_TRUE(multi_tensor_copy_this_to_that(source, target, &overflow).has_value());
      EXPECT_EQ(target[0][1].item<float>(), 2.0f);
      return overflow;
    };
    EXPECT_EQ(flag(65504.0f, 0), 0);
    EXPECT_EQ(flag(65519.0f, 0), 0);
    EXPECT_EQ(flag(65520.0f, 0), 1);  // finite, but too large for fp16
    EXPECT_TRUE(std::isinf(target[1][0].item<float>()));
    EXPECT_EQ(flag(Limits::quiet_NaN(), 0), 1);
    EXPECT_EQ(flag(-Limits::infinity(), 0), 1);
    EXPECT_EQ(flag(1.0f, 1), 1);  // found by somebody before
    EXPECT_EQ(flag(1.0f, 7), 7);
    EXPECT_TRUE(multi_tensor_copy_this_to_that({tensor_of({1e9f})}, {target[1]}).has_value());
    EXPECT_TRUE(multi_tensor_copy_this_to_that({}, {}).has_value());
  }
}

TEST(MultiTensorCopy, WrongListsAreRefusedBeforeAnythingIsCopied) {
  const at::Tensor one = tensor_of({1.0f}), two = tensor_of({1.0f, 2.0f}), zero = at::zeros({1});
  const Status longer = multi_tensor_copy_this_to_that({one, one}, {zero});
  ASSERT_FALSE(longer.has_value());
  EXPECT_NE(longer.error().message.find("2 tensors into 1"), std::string::npos) << longer.error().message;
  const Status sizes = multi_tensor_copy_this_to_that({one, two}, {zero, zero});
  ASSERT_FALSE(sizes.has_value());
  EXPECT_NE(sizes.error().message.find("pair 1: sizes [2] into [1]"), std::string::npos)
      << sizes.error().message;
  EXPECT_EQ(zero.item<float>(), 0.0f);
}

}  // namespace
}  // namespace plumbline
