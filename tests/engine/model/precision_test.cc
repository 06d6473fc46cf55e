#include "engine/model/precision.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/base/rng.h"

namespace plumbline {
namespace {

// Every exponent, random significands, and the values around each half and bfloat16 step.
std::vector<float> interesting() {
  std::vector<float> values{0.0f,     -0.0f,    65504.0f, 65519.99f,
                            65520.0f, 0x1p-24f, 0x1p-25f, std::nextafter(0x1p-25f, 1.0f),
                            INFINITY, -INFINITY};
  const CounterRng rng(7, "precision");
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(rng.bits(i)));
    if (std::isnan(value)) continue;
    values.push_back(value);
    values.push_back(static_cast<float>(c10::Half(value)));
    values.push_back(std::nextafter(values.back(), 1e9f));
    values.push_back(static_cast<float>(c10::BFloat16(value)));
  }
  while (values.size() % 8 != 3) values.push_back(1.0f);  // the vector loops have a tail
  return values;
}

template <typename Type>
void compare(DType dtype) {
  const std::vector<float> values = interesting();
  std::vector<std::uint16_t> bits(values.size());
  narrow(values.data(), dtype, bits.data(), values.size());
  std::vector<float> wide(values.size());
  widen(bits.data(), dtype, wide.data(), wide.size());
  std::vector<float> rounded = values;
  round_to(dtype, rounded.data(), rounded.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Type expected(values[i]);
    ASSERT_EQ(bits[i], expected.x) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(expected)))
        << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(rounded[i]), std::bit_cast<std::uint32_t>(wide[i]));
    ASSERT_EQ(round_to(dtype, values[i]), rounded[i]);
  }
}

TEST(Precision, HalfRoundsAsLibTorchDoes) { compare<c10::Half>(DType::kF16); }
TEST(Precision, BFloat16RoundsAsLibTorchDoes) { compare<c10::BFloat16>(DType::kBF16); }

// Every 16-bit pattern and NaNs with all kinds of payload, at any alignment.
TEST(Precision, PlainAndVectorLoopsGiveTheSameBits) {
  std::vector<float> values = interesting();
  const CounterRng rng(8, "nan");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng.bits(i)) | 0x7F800001u));
  }
  std::vector<std::uint16_t> patterns(0x10001);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const auto run = [&](bool plain) {
      force_plain_precision(plain);
      std::vector<std::uint16_t> bits(values.size());
      std::vector<float> wide(patterns.size()), rounded = values;
      narrow(values.data(), type, bits.data(), values.size());
      widen(patterns.data() + 1, type, wide.data() + 1, patterns.size() - 1);
      round_to(type, rounded.data() + 2, rounded.size() - 2);
      force_plain_precision(false);
      return std::tuple(bits, std::move(wide), std::move(rounded));
    };
    const auto [bits, wide, rounded] = run(true);
    const auto [fast_bits, fast_wide, fast_rounded] = run(false);
    EXPECT_EQ(bits, fast_bits);
    EXPECT_EQ(std::memcmp(wide.data(), fast_wide.data(), wide.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(rounded.data(), fast_rounded.data(), rounded.size() * sizeof(float)), 0);
  }
}

TEST(Precision, AccumulateAddsInFp32) {
  std::vector<std::uint16_t> halves(3000, 0x3c00);  // 1.0
  std::vector<float> sums(halves.size(), 0x1p-20f);
  accumulate(halves.data(), DType::kF16, sums.data(), sums.size());
  for (const float sum : sums) ASSERT_EQ(sum, 1.0f + 0x1p-20f);
}

}  // namespace
}  // namespace plumbline
