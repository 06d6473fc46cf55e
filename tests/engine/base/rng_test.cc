#include "engine/base/rng.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/hash.h"

namespace plumbline {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers of philox4x32-10 published with Random123 (kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(CounterRng, DrawsDependOnSeedNameAndIndexAlone) {
  const CounterRng a(7, "weights");
  EXPECT_EQ(a.bits(5), CounterRng(7, "weights").bits(5));
  EXPECT_NE(a.bits(5), a.bits(6));
  EXPECT_NE(a.bits(5), CounterRng(8, "weights").bits(5));
  EXPECT_NE(a.bits(5), CounterRng(7, "biases").bits(5));
}

TEST(CounterRng, DistributionsHaveTheirMoments) {
  const CounterRng rng(1, "moments");
  constexpr int kDraws = 200'000;
  double uniform = 0.0, normal = 0.0, square = 0.0;
  for (int i = 0; i < kDraws; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const double u = rng.uniform(index);
    ASSERT_TRUE(u >= 0.0 && u < 1.0);
    ASSERT_LT(rng.below(index, 10), 10u);
    uniform += u;
    normal += rng.normal(index);
    square += rng.normal(index) * rng.normal(index);
  }
  // Six standard deviations of the means; the draws are fixed, so this passes always or never.
  EXPECT_NEAR(uniform / kDraws, 0.5, 6 * 0.2887 / std::sqrt(kDraws));
  EXPECT_NEAR(normal / kDraws, 0.0, 6 / std::sqrt(kDraws));
  EXPECT_NEAR(square / kDraws, 1.0, 6 * std::sqrt(2.0 / kDraws));
}

TEST(Hasher, OrderAndBoundariesMatter) {
  const auto digest = [](std::initializer_list<const char*> texts) {
    Hasher hasher;
    for (const char* text : texts) hasher.text(text);
    return hasher.digest();
  };
  EXPECT_NE(digest({"ab", "c"}), digest({"a", "bc"}));
  EXPECT_NE(digest({"a", "b"}), digest({"b", "a"}));
  EXPECT_EQ(digest({"a", "b"}), digest({"a", "b"}));
  Hasher one_by_one;
  std::vector<std::uint64_t> words;
  for (std::uint64_t i = 0; i < 1000; ++i) {  // through every way that XXH3 has for short and long inputs
    EXPECT_EQ(hash64(words), one_by_one.digest()) << i;
    words.push_back(i * 0x9E3779B97F4A7C15u);
    one_by_one.u64(words.back());
  }
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2u);  // XXH3's published digest of nothing
  EXPECT_EQ(hex64(0xabcu), "0000000000000abc");
}

}  // namespace
}  // namespace plumbline
