// The sum of squares against an independent big integer, and the properties it exists for: the same bits for
// any order and any division of the elements.
#include "engine/base/exact_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/support/floats.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

using Limits = std::numeric_limits<float>;

// A natural number in 16-bit limbs, times 2^-298; school arithmetic only.
class Natural {
 public:
  // Adds value^2, from frexp's parts.
  void add_square(float value) {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(static_cast<double>(value)), &exponent);
    const auto significand = static_cast<std::uint64_t>(std::ldexp(fraction, 24));  // exact: 24 bits
    if (significand == 0) return;
    std::uint64_t square = significand * significand;
    int place = 2 * (exponent - 24) + 298;
    while (place < 0) {  // subnormals, which frexp normalized: the bits shifted out are zeros
      square >>= 1;
      ++place;
    }
    for (int bit = 0; bit < 48; ++bit) {
      if ((square >> bit & 1u) != 0) add_bit(static_cast<std::size_t>(place + bit));
    }
  }

  std::uint64_t bits(std::size_t from, std::size_t count) const {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t limb = (from + i) / 16;
      if (limb >= limbs_.size()) continue;
      out |= static_cast<std::uint64_t>(limbs_[limb] >> ((from + i) % 16) & 1u) << i;
    }
    return out;
  }

  // The C library reads a hexadecimal number of any length and rounds it once, to nearest even.
  double rounded() const {
    std::string text = "0x0";
    for (std::size_t i = limbs_.size() * 4; i-- > 0;) text += "0123456789abcdef"[bits(4 * i, 4)];
    return std::strtod((text + "p-298").c_str(), nullptr);
  }

 private:
  void add_bit(std::size_t place) {
    std::size_t limb = place / 16;
    std::uint32_t carry = 1u << (place % 16);
    while (carry != 0) {
      if (limbs_.size() <= limb) limbs_.resize(limb + 1);
      const std::uint32_t total = limbs_[limb] + carry;
      limbs_[limb++] = total & 0xFFFFu;
      carry = total >> 16;
    }
  }
  std::vector<std::uint32_t> limbs_;
};

ExactSum sum_of(const std::vector<float>& values) {
  ExactSum sum;
  for (const float value : values) sum.add_square(value);
  return sum;
}

// What differs between the sum and the big integer; empty when nothing does.
std::string difference(const std::vector<float>& values) {
  Natural natural;
  for (const float value : values) natural.add_square(value);
  const ExactSum sum = sum_of(values);
  const auto words = sum.words();
  for (std::size_t i = 0; i < ExactSum::kDigits; ++i) {
    const std::size_t width = i + 1 == ExactSum::kDigits ? 60 : 40;
    if (static_cast<std::uint64_t>(words[i]) != natural.bits(40 * i, width)) {
      return "digit " + std::to_string(i);
    }
  }
  return sum.value() == natural.rounded() ? "" : "value";
}

TEST(ExactSum, NothingAndZerosAreZero) {
  EXPECT_EQ(ExactSum().value(), 0.0);
  EXPECT_EQ(sum_of({0.0f, -0.0f}).value(), 0.0);
  EXPECT_FALSE(std::signbit(sum_of({-0.0f}).value()));
  EXPECT_TRUE(sum_of({-0.0f}) == ExactSum());
}

TEST(ExactSum, Extremes) {
  EXPECT_EQ(difference({Limits::denorm_min()}), "");
  EXPECT_EQ(difference({Limits::max()}), "");
  EXPECT_EQ(difference({Limits::max(), Limits::denorm_min()}), "");
  EXPECT_EQ(difference(std::vector<float>(5000, Limits::max())), "");
  EXPECT_EQ(sum_of({Limits::denorm_min()}).value(), 0x1p-298);
  EXPECT_EQ(sum_of({3.0f, -4.0f}).value(), 25.0);
}

// Each of the small squares is below half a unit of the last place of the large one; together they are not.
TEST(ExactSum, SmallSquaresBesideALargeOneCount) {
  std::vector<float> values(4096, 0x1p-32f);
  values.insert(values.begin(), 1.0f);
  EXPECT_EQ(sum_of(values).value(), 1.0 + 0x1p-52);
  double naive = 0.0;
  for (const float value : values) naive += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_EQ(naive, 1.0);
}

TEST(ExactSum, RoundsHalfToEven) {
  const float one = 1.0f, half_unit = 0x1p-27f;  // its square, 2^-54, is half of half a unit of 1 + 2^-52
  EXPECT_EQ(sum_of({one, half_unit, half_unit}).value(), 1.0);                       // tie: down to even
  EXPECT_EQ(sum_of({one, half_unit, half_unit, 0x1p-149f}).value(), 1.0 + 0x1p-52);  // just above
  EXPECT_EQ(sum_of({one, 0x1p-26f, half_unit, half_unit}).value(), 1.0 + 0x1p-51);   // tie: up to even
  EXPECT_EQ(sum_of({one, 0x1p-26f, half_unit}).value(), 1.0 + 0x1p-52);              // below the middle
}

TEST(ExactSum, WhatIsNotFiniteIsCounted) {
  ExactSum sum = sum_of({1.0f, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), 2.0f});
  EXPECT_FALSE(sum.finite());
  EXPECT_TRUE(std::isnan(sum.value()));
  EXPECT_EQ(sum.words()[ExactSum::kDigits], 3);
  sum.add_not_finite(2);
  EXPECT_EQ(sum.words()[ExactSum::kDigits], 5);
}

// A long sum without a carry in between would overflow a word after 2^23 additions.
TEST(ExactSum, LongSumsCarryInTime) {
  ExactSum sum;
  constexpr std::int64_t kTimes = 20'000'000;
  constexpr std::int64_t kLargest = (std::int64_t{1} << 40) - 1;
  for (std::int64_t i = 0; i < kTimes; ++i) sum.add_scaled(kLargest, ExactSum::kUnit + 80);
  ExactSum expected;
  expected.add_scaled(kTimes << 20, ExactSum::kUnit + 100);
  expected.add_scaled(-kTimes, ExactSum::kUnit + 80);
  EXPECT_TRUE(sum == expected);
}

TEST(ExactSum, PartsMayBeNegative) {
  ExactSum sum = sum_of({1.0f});
  sum.add_scaled(-1, -298);
  sum.add_scaled(std::numeric_limits<std::int64_t>::min(), -100);
  sum.add_scaled(1, -37);
  sum.add_scaled(1, -298);
  EXPECT_TRUE(sum == sum_of({1.0f}));
}

TEST(ExactSum, EqualsABigInteger) {
  test::check_cases(10'000, [] {
    RC_ASSERT(difference(*rc::gen::container<std::vector<float>>(test::finite_float())) == "");
  });
}

TEST(ExactSum, OrderDoesNotMatter) {
  test::check_cases(10'000, [] {
    auto values = *rc::gen::container<std::vector<float>>(test::any_float());
    const ExactSum before = sum_of(values);
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto keys =
        *rc::gen::container<std::vector<std::uint32_t>>(values.size(), rc::gen::arbitrary<std::uint32_t>());
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] < keys[b]; });
    ExactSum after;
    for (const std::size_t i : order) after.add_square(values[i]);
    RC_ASSERT(before == after);
    RC_ASSERT(std::bit_cast<std::uint64_t>(before.value()) == std::bit_cast<std::uint64_t>(after.value()));
  });
}

// Ranks sum their part; words travel and are added as integers, without carries, as an all-reduce does.
TEST(ExactSum, DivisionOverRanksDoesNotMatter) {
  test::check_cases(10'000, [] {
    const auto values = *rc::gen::container<std::vector<float>>(test::any_float());
    const auto ranks = *rc::gen::inRange<std::size_t>(1, 9);
    std::vector<ExactSum> parts(ranks);
    for (const float value : values) parts[*rc::gen::inRange<std::size_t>(0, ranks)].add_square(value);

    std::array<std::int64_t, ExactSum::kWords> added{};
    ExactSum joined;
    for (const ExactSum& part : parts) {
      const auto words = part.words();
      for (std::size_t i = 0; i < words.size(); ++i) added[i] += words[i];
      joined += part;
    }
    const ExactSum whole = sum_of(values);
    RC_ASSERT(ExactSum::of(added) == whole);
    RC_ASSERT(joined == whole);
    RC_ASSERT(ExactSum::of(whole.words()) == whole);
  });
}

}  // namespace
}  // namespace plumbline
