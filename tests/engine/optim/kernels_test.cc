// The optimizer's kernels against elementwise arithmetic written down here, and the plain copy against the one
// for AVX2, bit for bit.
#include "engine/optim/kernels.h"

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/optim/arrays.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

using test::Array;
using test::difficult_floats;
using Limits = std::numeric_limits<float>;
constexpr std::array kTypes{DType::kF32, DType::kF16, DType::kBF16};

struct Plain {
  explicit Plain(bool on) { kernels::force_plain_optim(on); }
  ~Plain() { kernels::force_plain_optim(false); }
};

// One difficult array: what RapidCheck draws and shrinks.
std::tuple<std::vector<float>, std::size_t> draw(std::size_t most) {
  const auto count = *rc::gen::inRange<std::size_t>(0, most + 1).as("elements");
  const auto kind = *rc::gen::inRange(0, test::kDifficultKinds).as("kind");
  const auto seed = *rc::gen::arbitrary<std::uint32_t>().as("seed");
  const auto shift = *rc::gen::inRange<std::size_t>(0, 17).as("shift");
  return {difficult_floats(seed, count, kind), shift};
}

TEST(UnscaleCheckNorm, EqualsElementByElement) {
  test::check_cases(10'000, [] {
    const auto [values, shift] = draw(1100);
    const auto factor =
        *rc::gen::element(1.0f, 0.5f, 1.0f / 3.0f, 0x1p-32f, 0x1p30f, 0.0f, -1.0f).as("factor");
    bool finite = true;
    ExactSum expected;
    std::vector<float> products = values;
    for (float& product : products) {
      finite = finite && std::isfinite(product);
      product *= factor;
      expected.add_square(product);
    }
    const Array wanted(DType::kF32, products, shift);
    for (const bool plain : {false, true}) {
      const Plain scope(plain);
      Array array(DType::kF32, values, shift);
      ExactSum norm;
      const bool fine =
          kernels::unscale_check_norm(static_cast<float*>(array.data()), values.size(), factor, &norm);
      RC_ASSERT(fine == finite);
      RC_ASSERT(array == wanted);
      RC_ASSERT(norm == expected);
      ExactSum again;
      kernels::add_squares(static_cast<const float*>(array.data()), values.size(), again);
      RC_ASSERT(again == expected);
    }
  });
}

// Drawn value by value, so that a failure shrinks to few values.
TEST(UnscaleCheckNorm, AddsSquaresOfAnyValuesExactly) {
  test::check_cases(10'000, [] {
    const auto values = *rc::gen::container<std::vector<float>>(test::any_float());
    ExactSum expected, norm;
    for (const float value : values) expected.add_square(value);
    kernels::add_squares(values.data(), values.size(), norm);
    RC_ASSERT(norm == expected);
  });
}

// The last bit of the least square at, just inside and just outside what two windows reach.
TEST(UnscaleCheckNorm, RangesAtTheEdgeOfTheWindows) {
  for (int down = 20; down < 35; ++down) {
    for (int exponent = -140; exponent <= 127; exponent += 3) {
      std::vector<float> values(64, std::ldexp(0x1.fffffep0f, exponent));
      values[63] = std::ldexp(0x1.000002p0f, exponent - down);
      values[7] = -std::ldexp(0x1.fffffep0f, exponent - down);
      ExactSum expected, norm;
      for (const float value : values) expected.add_square(value);
      kernels::add_squares(values.data(), values.size(), norm);
      ASSERT_TRUE(norm == expected) << "2^" << exponent << " and 2^" << exponent - down;
    }
  }
}

TEST(UnscaleCheckNorm, WithoutANorm) {
  std::vector<float> fine{1.0f, 65504.0f, -0.0f, 1e-40f, Limits::max()};
  EXPECT_TRUE(kernels::unscale_check_norm(fine.data(), fine.size(), 2.0f, nullptr));
  EXPECT_EQ(fine[1], 131008.0f);
  EXPECT_TRUE(std::signbit(fine[2]));
  EXPECT_TRUE(std::isinf(fine[4]));  // finite before: not an overflow of the backward pass
  for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    std::vector<float> values(40, 2.0f);
    values[33] = bad;
    EXPECT_FALSE(kernels::unscale_check_norm(values.data(), values.size(), 0.5f, nullptr));
    EXPECT_EQ(values[39], 1.0f);
  }
  EXPECT_TRUE(kernels::unscale_check_norm(nullptr, 0, 0.5f, nullptr));
}

TEST(OtherNorms, AgreeWithPlainLoops) {
  test::check_cases(2'000, [] {
    const auto [values, shift] = draw(200);
    Array array(DType::kF32, values, shift);
    const auto* data = static_cast<const float*>(array.data());
    float most = 0.0f;
    double cubes = 0.0;
    std::int64_t zeros = 0;
    for (const float value : values) {
      if (std::isnan(value) || std::isnan(most)) {
        most = Limits::quiet_NaN();
      } else {
        most = std::max(most, std::fabs(value));
      }
      cubes += std::pow(std::fabs(static_cast<double>(value)), 3.0);
      zeros += value == 0.0f ? 1 : 0;
    }
    for (const bool plain : {false, true}) {
      const Plain scope(plain);
      RC_ASSERT(test::same_or_nan(kernels::abs_max(data, values.size()), most));
      RC_ASSERT(kernels::count_zeros(data, values.size()) == zeros);
      const double sum = kernels::sum_of_powers(data, values.size(), 3.0);
      RC_ASSERT((std::isnan(cubes) ? std::isnan(sum) : sum == cubes));
    }
  });
}

TEST(Convert, RoundsOnceAndSeesWhatIsNotFinite) {
  test::check_cases(3'000, [] {
    const auto [values, shift] = draw(1100);
    const auto from = *rc::gen::elementOf(kTypes);
    const auto to = *rc::gen::elementOf(kTypes);
    Array source(from, values, shift);
    Array wanted(to, std::vector<float>(values.size()), shift / 2);
    bool finite = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      wanted.set(i, source.at(i));
      finite = finite && std::isfinite(wanted.at(i));
    }
    for (const bool plain : {false, true}) {
      const Plain scope(plain);
      Array target(to, std::vector<float>(values.size()), shift / 2);
      const bool fine = kernels::convert(source.data(), from, target.data(), to, values.size());
      RC_ASSERT(fine == finite);
      RC_ASSERT(target == wanted);
    }
  });
}

TEST(Convert, TheLargestHalf) {
  const auto fits = [](float value, DType to) {
    std::uint16_t out = 0;
    return kernels::convert(&value, DType::kF32, &out, to, 1);
  };
  EXPECT_TRUE(fits(65504.0f, DType::kF16));
  EXPECT_TRUE(fits(std::nextafter(65520.0f, 0.0f), DType::kF16));
  EXPECT_FALSE(fits(65520.0f, DType::kF16));
  EXPECT_FALSE(fits(-65520.0f, DType::kF16));
  EXPECT_TRUE(fits(65520.0f, DType::kBF16));
  EXPECT_TRUE(fits(test::float_of(0x7F7F7FFFu), DType::kBF16));
  EXPECT_FALSE(fits(test::float_of(0x7F7F8000u), DType::kBF16));
}

}  // namespace
}  // namespace plumbline
