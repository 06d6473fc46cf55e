#include "engine/storage/element_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plumbline {

std::optional<std::int64_t> element_count(const Shape& shape) {
  // Every factor is checked, also beside a 0: [0, 2^63 - 1, 2^63 - 1] has no elements and is refused.
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, size, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

std::optional<std::uint64_t> byte_count(ElementType type, const Shape& shape) {
  const std::optional<std::int64_t> count = element_count(shape);
  std::uint64_t bits = 0;
  if (!count || __builtin_mul_overflow(static_cast<std::uint64_t>(*count),
                                       static_cast<std::uint64_t>(element_bits(type)), &bits))
    return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace plumbline
