#include "engine/runtime/reduce.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/base/assert.h"
#include "engine/runtime/half.h"

namespace plumbline {
namespace {

// How elements lie in memory and in which type they are combined.
template <typename T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum widen(Stored value) { return value; }
  static Stored narrow(Sum value) { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum widen(Stored value) { return f16_to_float(value); }
  static Stored narrow(Sum value) { return float_to_f16(value); }
};
struct Bfloat {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum widen(Stored value) { return bf16_to_float(value); }
  static Stored narrow(Sum value) { return float_to_bf16(value); }
};

// Memory of slots is bytes; going through memcpy keeps the type rules and compiles to plain loads and stores.
template <typename T>
T load(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return a < b ? b : a;
}

template <typename Element, typename Combine>
void combine(std::span<const std::byte* const> sources, std::byte* out, std::size_t count, Combine op) {
  using Stored = typename Element::Stored;
  for (std::size_t i = 0; i < count; ++i) {
    auto total = Element::widen(load<Stored>(sources[0], i));
    for (std::size_t s = 1; s < sources.size(); ++s)
      total = op(total, Element::widen(load<Stored>(sources[s], i)));
    const Stored stored = Element::narrow(total);
    std::memcpy(out + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

template <typename Element>
void reduce_as(ReduceOp op, std::span<const std::byte* const> sources, std::byte* out, std::size_t count) {
  using Sum = typename Element::Sum;
  if (op == ReduceOp::kSum) {
    combine<Element>(sources, out, count, [](Sum a, Sum b) { return sum(a, b); });
  } else {
    combine<Element>(sources, out, count, [](Sum a, Sum b) { return larger(a, b); });
  }
}

}  // namespace

void reduce_ordered(DType dtype, ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                    std::size_t count) {
  PL_ASSERT(!sources.empty());
  switch (dtype) {
    case DType::kU8:
      return reduce_as<Plain<std::uint8_t>>(op, sources, out, count);
    case DType::kI32:
      return reduce_as<Plain<std::int32_t>>(op, sources, out, count);
    case DType::kI64:
      return reduce_as<Plain<std::int64_t>>(op, sources, out, count);
    case DType::kF16:
      return reduce_as<Half>(op, sources, out, count);
    case DType::kBF16:
      return reduce_as<Bfloat>(op, sources, out, count);
    case DType::kF32:
      return reduce_as<Plain<float>>(op, sources, out, count);
    case DType::kF64:
      return reduce_as<Plain<double>>(op, sources, out, count);
  }
  PL_ASSERT_MSG(false, "unknown element type");
}

double first_element(DType dtype, const std::byte* data) {
  switch (dtype) {
    case DType::kU8:
      return load<std::uint8_t>(data, 0);
    case DType::kI32:
      return load<std::int32_t>(data, 0);
    case DType::kI64:
      return static_cast<double>(load<std::int64_t>(data, 0));
    case DType::kF16:
      return f16_to_float(load<std::uint16_t>(data, 0));
    case DType::kBF16:
      return bf16_to_float(load<std::uint16_t>(data, 0));
    case DType::kF32:
      return load<float>(data, 0);
    case DType::kF64:
      return load<double>(data, 0);
  }
  PL_ASSERT_MSG(false, "unknown element type");
}

}  // namespace plumbline
