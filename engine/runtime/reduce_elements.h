// Element types of reductions: how they lie in memory, and in which type they are combined. Only for
// engine/runtime.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/base/assert.h"
#include "engine/base/dtype.h"
#include "engine/runtime/float8.h"
#include "engine/runtime/half.h"

namespace plumbline::detail {

// `accumulated` rounds to what sums are held in where they are not rounded to the type itself every time.
template <typename T>
struct PlainElement {
  using Stored = T;
  using Wide = T;
  static Wide widen(Stored value) { return value; }
  static Stored narrow(Wide value) { return value; }
  static Wide accumulated(Wide value) { return value; }
};
struct HalfElement {
  using Stored = std::uint16_t;
  using Wide = float;
  static Wide widen(Stored value) { return f16_to_float(value); }
  static Stored narrow(Wide value) { return float_to_f16(value); }
  static Wide accumulated(Wide value) { return value; }
};
struct BfloatElement {
  using Stored = std::uint16_t;
  using Wide = float;
  static Wide widen(Stored value) { return bf16_to_float(value); }
  static Stored narrow(Wide value) { return float_to_bf16(value); }
  static Wide accumulated(Wide value) { return value; }
};
// Combined in f16, as NCCL does; a sum that is too large for the type is its largest number.
template <typename Format>
struct Float8Element {
  using Stored = std::uint8_t;
  using Wide = float;
  static Wide widen(Stored value) { return f8_to_float<Format>(value); }
  static Stored narrow(Wide value) { return float_to_f8<Format>(accumulated(value)); }
  static Wide accumulated(Wide value) { return f16_to_float(float_to_f16(value)); }
};

// Memory of slots is bytes; going through memcpy keeps the type rules and compiles to plain loads and stores.
template <typename T>
T load_element(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void store_element(std::byte* data, std::size_t index, T value) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

// Integers wrap around.
template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}
template <typename T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    // Through 64 bits: narrower types would be promoted to a signed one, whose overflow is undefined.
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

// The larger, or the smaller, of two; a NaN wins over a number, or loses to it.
template <bool kLarger, bool kNanWins, typename T>
T extreme(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return kNanWins ? a : b;
    if (std::isnan(b)) return kNanWins ? b : a;
    // Of two zeros the positive one is larger.
    if (a == b) return std::signbit(a) == kLarger ? b : a;
  }
  return (a < b) == kLarger ? b : a;
}

// Calls visit(PlainElement<float>{}) or the like.
template <typename Visit>
void with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kU8:
      return visit(PlainElement<std::uint8_t>{});
    case DType::kI32:
      return visit(PlainElement<std::int32_t>{});
    case DType::kI64:
      return visit(PlainElement<std::int64_t>{});
    case DType::kF16:
      return visit(HalfElement{});
    case DType::kBF16:
      return visit(BfloatElement{});
    case DType::kF32:
      return visit(PlainElement<float>{});
    case DType::kF64:
      return visit(PlainElement<double>{});
    case DType::kF8E4M3:
      return visit(Float8Element<E4M3>{});
    case DType::kF8E5M2:
      return visit(Float8Element<E5M2>{});
  }
  PL_ASSERT_MSG(false, "unknown element type");
}

}  // namespace plumbline::detail
