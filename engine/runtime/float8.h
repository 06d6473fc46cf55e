// The two 8-bit floating-point formats as bit patterns, as CUDA converts them in NCCL: to nearest, ties to
// even, and what is too large - an infinity as well - becomes the largest number (__NV_SATFINITE). NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/runtime/half.h"

namespace plumbline {

// 4 bits of exponent, 3 of fraction: up to 448, no infinities, one NaN a sign.
struct E4M3 {
  static constexpr int kFraction = 3, kBias = 7;
  static constexpr float kLargest = 448.0f;
};
// 5 and 2: the upper half of an f16, up to 57,344.
struct E5M2 {
  static constexpr int kFraction = 2, kBias = 15;
  static constexpr float kLargest = 57344.0f;
};

template <typename Format>
constexpr float f8_to_float(std::uint8_t bits) {
  if constexpr (Format::kFraction == 2) return f16_to_float(static_cast<std::uint16_t>(bits << 8));
  const std::uint32_t sign = (bits & 0x80u) << 24;
  const std::uint32_t magnitude = bits & 0x7Fu;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude + (120u << 3)) << 20));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  return sign != 0 ? -subnormal : subnormal;
}

template <typename Format>
constexpr std::uint8_t float_to_f8(float value) {
  constexpr int kShift = 23 - Format::kFraction;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint32_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const auto with_sign = [sign](std::uint32_t rest) { return static_cast<std::uint8_t>(sign | rest); };
  if (magnitude > 0x7F800000u) return with_sign(0x7F);
  constexpr auto kLargest = std::bit_cast<std::uint32_t>(Format::kLargest);
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Format::kBias) << 23;
  if (magnitude >= kLargest) return with_sign((kLargest - kRebias) >> kShift);
  if (magnitude >= kRebias + (1u << 23)) {  // normal
    const std::uint32_t half = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1u);
    return with_sign((magnitude - kRebias + half) >> kShift);
  }
  // Subnormal: in units of the least one, rounded by adding what leaves no room for a fraction.
  constexpr float kUnits = static_cast<float>(1u << (Format::kBias - 1 + Format::kFraction));
  const float units = std::bit_cast<float>(magnitude) * kUnits + 0x1p23f;
  return with_sign(std::bit_cast<std::uint32_t>(units) & 0xFu);
}

}  // namespace plumbline
