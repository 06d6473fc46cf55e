// Element types of tensors and messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline {

enum class DType : std::uint8_t { kU8, kI32, kI64, kF16, kBF16, kF32, kF64 };

constexpr int dtype_bytes(DType type) {
  switch (type) {
    case DType::kU8:
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
  }
  return "?";
}

constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DType type :
       {DType::kU8, DType::kI32, DType::kI64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    if (dtype_name(type) == name) return type;
  }
  return std::nullopt;
}

}  // namespace plumbline
