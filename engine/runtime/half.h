// The two 16-bit floating-point formats as bit patterns, for reductions outside LibTorch. Widening is exact, and
// makes an f16 NaN quiet as F16C does; narrowing rounds to nearest, ties to even, keeps infinities, and turns
// every NaN into a quiet one.
#pragma once

#include <bit>
#include <cstdint>

namespace plumbline {

constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 31) {
    const std::uint32_t quiet = fraction == 0 ? 0u : 0x400000u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (fraction << 13));
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Subnormal: fraction * 2^-24, exact in a float.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

constexpr std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u)
    return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // rounds to 65536 or more
  if (magnitude >= 0x38800000u) {                                                   // normal: 2^-14 and up
    const std::uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
  if (magnitude < 0x33000000u) return sign;  // below half of the least subnormal
  // Subnormal: the significand, shifted so that its unit is 2^-24.
  const std::uint32_t shift = 126 - (magnitude >> 23);
  const std::uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  const std::uint32_t kept = significand >> shift;
  const std::uint32_t rest = significand & ((1u << shift) - 1);
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t up = (rest > half || (rest == half && (kept & 1u) != 0)) ? 1 : 0;
  return static_cast<std::uint16_t>(sign | (kept + up));
}

}  // namespace plumbline
