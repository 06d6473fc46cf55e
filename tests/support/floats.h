// RapidCheck generators of floats by bit pattern: all magnitudes alike, with the special values often.
// Counterexamples shrink towards small bit patterns, that is, towards zero.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include <rapidcheck.h>

namespace plumbline::test {

inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

inline rc::Gen<std::uint32_t> arbitrary_bits() {
  return rc::gen::map(rc::gen::arbitrary<std::pair<std::uint16_t, std::uint16_t>>(), [](auto halves) {
    return static_cast<std::uint32_t>(halves.first) << 16 | halves.second;
  });
}

// Any finite value.
inline rc::Gen<float> finite_float() {
  using Limits = std::numeric_limits<float>;
  const auto usual = rc::gen::map(rc::gen::resize(100, arbitrary_bits()), [](std::uint32_t bits) {
    const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
    return float_of(finite ? bits : bits & 0xBFFFFFFFu);  // clears a bit of the exponent
  });
  // Around one, as gradients are.
  const auto mild = rc::gen::map(rc::gen::resize(100, arbitrary_bits()), [](std::uint32_t bits) {
    return float_of((bits & 0x83FFFFFFu) | 0x3C000000u);
  });
  const auto special =
      rc::gen::element(0.0f, -0.0f, 1.0f, -1.0f, Limits::max(), -Limits::max(), Limits::min(),
                       Limits::denorm_min(), -Limits::denorm_min(), 65504.0f, 65520.0f, 1e-7f);
  return rc::gen::weightedOneOf<float>({{4, usual}, {4, mild}, {2, special}});
}

// Any value, infinities and NaNs (quiet and signalling) included, though rarely.
inline rc::Gen<float> any_float() {
  using Limits = std::numeric_limits<float>;
  const auto special = rc::gen::element(Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
                                        float_of(0x7F800001u), float_of(0xFFC12345u));
  return rc::gen::weightedOneOf<float>({{30, finite_float()}, {1, special}});
}

}  // namespace plumbline::test
