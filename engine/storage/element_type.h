// Element types of stored tensors, under safetensors' names. Wider than engine/base's DType: a checkpoint
// holds what others wrote too.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

enum class ElementType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,  // clang-format off
  kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kC64, kF64, kI64, kU64,
};  // clang-format on

struct ElementTypeRow {
  ElementType type;
  std::string_view name;
  int bits;
};

inline constexpr std::array<ElementTypeRow, 22> kElementTypes = {{
    {ElementType::kBool, "BOOL", 8},
    {ElementType::kF4, "F4", 4},
    {ElementType::kF6E2M3, "F6_E2M3", 6},
    {ElementType::kF6E3M2, "F6_E3M2", 6},
    {ElementType::kU8, "U8", 8},
    {ElementType::kI8, "I8", 8},
    {ElementType::kF8E5M2, "F8_E5M2", 8},
    {ElementType::kF8E4M3, "F8_E4M3", 8},
    {ElementType::kF8E8M0, "F8_E8M0", 8},
    {ElementType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {ElementType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {ElementType::kI16, "I16", 16},
    {ElementType::kU16, "U16", 16},
    {ElementType::kF16, "F16", 16},
    {ElementType::kBF16, "BF16", 16},
    {ElementType::kI32, "I32", 32},
    {ElementType::kU32, "U32", 32},
    {ElementType::kF32, "F32", 32},
    {ElementType::kC64, "C64", 64},
    {ElementType::kF64, "F64", 64},
    {ElementType::kI64, "I64", 64},
    {ElementType::kU64, "U64", 64},
}};

constexpr const ElementTypeRow& row_of(ElementType type) {
  return kElementTypes[static_cast<std::size_t>(type)];
}
constexpr int element_bits(ElementType type) { return row_of(type).bits; }
constexpr std::string_view element_name(ElementType type) { return row_of(type).name; }
constexpr std::optional<ElementType> element_type_from_name(std::string_view name) {
  for (const ElementTypeRow& row : kElementTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

using Shape = std::vector<std::int64_t>;

// Product of the dimensions, and bytes of so many elements; absent when a dimension is negative, 64 bits do
// not hold it, or the bits do not fill bytes.
std::optional<std::int64_t> element_count(const Shape& shape);
std::optional<std::uint64_t> byte_count(ElementType type, const Shape& shape);
std::string shape_text(const Shape& shape);  // "[2, 3]"

}  // namespace plumbline
