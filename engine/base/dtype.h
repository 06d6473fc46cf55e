// Element types of tensors and messages. The two of 8 bits are E4M3 without infinities and E5M2 (ncclFloat8e4m3,
// ncclFloat8e5m2): messages and reductions know them, stages do not compute in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline {

enum class DType : std::uint8_t { kU8, kI32, kI64, kF16, kBF16, kF32, kF64, kF8E4M3, kF8E5M2 };

constexpr int dtype_bytes(DType type) {
  switch (type) {
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

constexpr std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kF8E4M3:
      return "f8e4m3";
    case DType::kF8E5M2:
      return "f8e5m2";
  }
  return "?";
}

constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DType type : {DType::kU8, DType::kI32, DType::kI64, DType::kF16, DType::kBF16, DType::kF32,
                           DType::kF64, DType::kF8E4M3, DType::kF8E5M2}) {
    if (dtype_name(type) == name) return type;
  }
  return std::nullopt;
}

}  // namespace plumbline
