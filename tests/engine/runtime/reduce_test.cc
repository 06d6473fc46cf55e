#include "engine/runtime/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "engine/runtime/half.h"

namespace plumbline {
namespace {

template <typename T>
std::vector<T> reduced(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& sources) {
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  std::vector<T> out(sources[0].size());
  reduce_ordered(dtype, op, pointers, reinterpret_cast<std::byte*>(out.data()), out.size());
  return out;
}

TEST(Half, EveryF16ReadsBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
    } else {
      EXPECT_EQ(float_to_f16(value), half);
    }
  }
}

TEST(Half, EveryBf16ReadsBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
    } else {
      EXPECT_EQ(float_to_bf16(value), half);
    }
  }
}

// Between two neighbours, everything below the middle goes down, above it up, and the middle to the even one.
TEST(Half, F16RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = f16_to_float(static_cast<std::uint16_t>(bits));
    const double high = f16_to_float(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const std::uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    EXPECT_EQ(float_to_f16(middle), even);
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 0.0F)), bits);
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 1e6F)), bits + 1);
    EXPECT_EQ(float_to_f16(-middle), even | 0x8000u);
  }
  EXPECT_EQ(float_to_f16(65519.0F), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::infinity()), 0x7C00);
}

TEST(Reduce, FloatsInMemberOrder) {
  // (1e8 + 1) - 1e8 loses the 1; 1e8 - 1e8 + 1 does not: the order of members is the order of additions.
  EXPECT_EQ(reduced<float>(DType::kF32, ReduceOp::kSum, {{1e8F}, {1.0F}, {-1e8F}}), std::vector<float>{0.0F});
  EXPECT_EQ(reduced<float>(DType::kF32, ReduceOp::kSum, {{1e8F}, {-1e8F}, {1.0F}}), std::vector<float>{1.0F});
  EXPECT_EQ(reduced<double>(DType::kF64, ReduceOp::kSum, {{0.1}, {0.2}}), std::vector<double>{0.1 + 0.2});
}

TEST(Reduce, HalvesAccumulateInFloat) {
  // In f16 arithmetic 2048 + 1 is 2048, twice; in float the two ones survive.
  const auto h = [](float value) { return float_to_f16(value); };
  EXPECT_EQ(reduced<std::uint16_t>(DType::kF16, ReduceOp::kSum, {{h(2048)}, {h(1)}, {h(1)}}),
            std::vector<std::uint16_t>{h(2050)});
  const auto b = [](float value) { return float_to_bf16(value); };
  EXPECT_EQ(reduced<std::uint16_t>(DType::kBF16, ReduceOp::kSum, {{b(256)}, {b(1)}, {b(1)}}),
            std::vector<std::uint16_t>{b(258)});
}

TEST(Reduce, IntegersWrap) {
  const auto big = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduced<std::int32_t>(DType::kI32, ReduceOp::kSum, {{big}, {1}}),
            std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min()});
  EXPECT_EQ(reduced<std::int64_t>(DType::kI64, ReduceOp::kMax, {{-5}, {-7}, {-6}}),
            std::vector<std::int64_t>{-5});
  EXPECT_EQ(reduced<std::uint8_t>(DType::kU8, ReduceOp::kSum, {{200}, {100}}), std::vector<std::uint8_t>{44});
}

TEST(Reduce, ANanIsNeverLost) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kF32, op, {{nan}, {1.0F}})[0]));
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kF32, op, {{1.0F}, {nan}, {2.0F}})[0]));
  }
}

TEST(Reduce, TheTargetMayBeASource) {
  std::vector<float> a{1, 2, 3}, b{10, 20, 30};
  const std::vector<const std::byte*> sources{reinterpret_cast<const std::byte*>(a.data()),
                                              reinterpret_cast<const std::byte*>(b.data())};
  reduce_ordered(DType::kF32, ReduceOp::kSum, sources, reinterpret_cast<std::byte*>(b.data()), 3);
  EXPECT_EQ(b, (std::vector<float>{11, 22, 33}));
}

TEST(Reduce, FirstElement) {
  const double value = -2.5;
  EXPECT_EQ(first_element(DType::kF64, reinterpret_cast<const std::byte*>(&value)), -2.5);
  const std::uint16_t half = float_to_f16(0.5F);
  EXPECT_EQ(first_element(DType::kF16, reinterpret_cast<const std::byte*>(&half)), 0.5);
}

}  // namespace
}  // namespace plumbline
