// Arrays in any of the three precisions, and elementwise arithmetic written down once more for comparison.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/rng.h"
#include "engine/runtime/half.h"
#include "tests/support/floats.h"

namespace plumbline::test {

// `count` values of a kind that makes sums difficult: everything from a seed.
inline std::vector<float> difficult_floats(std::uint64_t seed, std::size_t count, int kind) {
  using Limits = std::numeric_limits<float>;
  const CounterRng rng(seed, "difficult");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = rng.bits(2 * i);
    const auto normal = static_cast<float>(rng.normal(2 * i + 1));
    switch (kind) {
      case 0:  // as gradients are
        values[i] = normal;
        break;
      case 1:  // any finite pattern
        values[i] = float_of(static_cast<std::uint32_t>(bits) & 0xBFFFFFFFu);
        break;
      case 2:  // denormals among small ones
        values[i] = float_of(static_cast<std::uint32_t>(bits) & 0x80FFFFFFu);
        break;
      case 3:  // a few huge ones among tiny ones
        values[i] = (bits & 0x3F) == 0 ? Limits::max() : normal * 1e-30f;
        break;
      case 4:  // zeros of both signs, mostly
        values[i] = (bits & 7) == 0 ? normal : ((bits & 8) == 0 ? 0.0f : -0.0f);
        break;
      case 5:  // heavy tails: about 40 powers of two
        values[i] = std::exp2(10.0f * normal) * ((bits & 1) == 0 ? 1.0f : -1.0f);
        break;
      case 6:  // what is not finite, rarely
        values[i] = (bits & 0xFF) == 0
                        ? float_of(0x7F800000u | (static_cast<std::uint32_t>(bits >> 32) << 31) |
                                   ((bits >> 9 & 1) != 0 ? 0x123456u : 0u))
                        : normal;
        break;
      default:  // the same exponent, all ones: the largest sums
        values[i] = float_of(0x3FFFFFFFu);
        break;
    }
  }
  return values;
}
inline constexpr int kDifficultKinds = 8;

inline bool same_or_nan(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// An array in memory, `shift` bytes times the element size away from where vectors lie well.
class Array {
 public:
  Array(DType type, const std::vector<float>& values, std::size_t shift = 0)
      : type_(type), count_(values.size()), shift_(shift) {
    bytes_.resize((count_ + shift) * width() + 64);
    for (std::size_t i = 0; i < count_; ++i) set(i, values[i]);
  }
  void* data() { return bytes_.data() + shift_ * width(); }
  DType type() const { return type_; }

  float at(std::size_t i) const {
    const std::byte* place = bytes_.data() + (shift_ + i) * width();
    if (type_ == DType::kF32) {
      float value;
      std::memcpy(&value, place, 4);
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, place, 2);
    return type_ == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
  }
  // Rounded to the array's precision.
  void set(std::size_t i, float value) {
    std::byte* place = bytes_.data() + (shift_ + i) * width();
    if (type_ == DType::kF32) {
      std::memcpy(place, &value, 4);
      return;
    }
    const std::uint16_t bits = type_ == DType::kF16 ? float_to_f16(value) : float_to_bf16(value);
    std::memcpy(place, &bits, 2);
  }
  // Equal elements (NaNs are equal), and nothing written beside them.
  bool operator==(const Array& other) const {
    if (type_ != other.type_ || count_ != other.count_) return false;
    for (std::size_t i = 0; i < count_; ++i) {
      if (!same_or_nan(at(i), other.at(i))) return false;
    }
    for (std::size_t i = 0; i < shift_ * width(); ++i) {
      if (bytes_[i] != std::byte{0}) return false;
    }
    for (std::size_t i = (shift_ + count_) * width(); i < bytes_.size(); ++i) {
      if (bytes_[i] != std::byte{0}) return false;
    }
    return true;
  }

 private:
  std::size_t width() const { return static_cast<std::size_t>(dtype_bytes(type_)); }
  DType type_;
  std::size_t count_, shift_;
  std::vector<std::byte> bytes_;
};

}  // namespace plumbline::test
