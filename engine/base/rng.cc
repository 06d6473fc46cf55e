#include "engine/base/rng.h"

#include <cmath>

#include "engine/base/assert.h"
#include "engine/base/hash.h"

namespace plumbline {
namespace {

constexpr std::uint32_t kMultiplierA = 0xD2511F53u;
constexpr std::uint32_t kMultiplierB = 0xCD9E8D57u;
constexpr std::uint32_t kWeylA = 0x9E3779B9u;
constexpr std::uint32_t kWeylB = 0xBB67AE85u;
constexpr int kRounds = 10;

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

double to_unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{kMultiplierA} * counter[0];
    const std::uint64_t b = std::uint64_t{kMultiplierB} * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
    key[0] += kWeylA;
    key[1] += kWeylB;
  }
  return counter;
}

CounterRng::CounterRng(std::uint64_t seed, std::string_view stream)
    : key_{low(seed), high(seed)}, stream_(hash64(stream)) {}

std::uint64_t CounterRng::bits(std::uint64_t index) const {
  const auto out = philox4x32({low(index), high(index), low(stream_), high(stream_)}, key_);
  return (std::uint64_t{out[1]} << 32) | out[0];
}

double CounterRng::uniform(std::uint64_t index) const { return to_unit(bits(index)); }

double CounterRng::normal(std::uint64_t index) const {
  const auto out = philox4x32({low(index), high(index), low(stream_), high(stream_)}, key_);
  // 1 - u is in (0, 1], so the logarithm is finite.
  const double u = 1.0 - to_unit((std::uint64_t{out[1]} << 32) | out[0]);
  const double v = to_unit((std::uint64_t{out[3]} << 32) | out[2]);
  constexpr double kTwoPi = 6.283185307179586476925;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(kTwoPi * v);
}

std::uint64_t CounterRng::below(std::uint64_t index, std::uint64_t bound) const {
  PL_ASSERT(bound > 0);
  // Multiply-shift (Lemire); the bias is below bound / 2^64.
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

}  // namespace plumbline
