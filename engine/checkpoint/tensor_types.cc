#include "engine/checkpoint/tensor_types.h"

#include <array>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace plumbline {
namespace {

constexpr std::array<std::pair<at::ScalarType, ElementType>, 11> kTypes = {{
    {at::kBool, ElementType::kBool},
    {at::kByte, ElementType::kU8},
    {at::kChar, ElementType::kI8},
    {at::kShort, ElementType::kI16},
    {at::kInt, ElementType::kI32},
    {at::kLong, ElementType::kI64},
    {at::kHalf, ElementType::kF16},
    {at::kBFloat16, ElementType::kBF16},
    {at::kFloat, ElementType::kF32},
    {at::kDouble, ElementType::kF64},
    {at::kComplexFloat, ElementType::kC64},
}};

}  // namespace

Result<ElementType> element_type_of(at::ScalarType type) {
  for (const auto& [scalar, element] : kTypes) {
    if (scalar == type) return element;
  }
  return fail(ErrorCode::kUnsupported, fmt::format("tensors of {} cannot be stored", at::toString(type)));
}

Result<at::ScalarType> scalar_type_of(ElementType type) {
  for (const auto& [scalar, element] : kTypes) {
    if (element == type) return scalar;
  }
  return fail(ErrorCode::kUnsupported, fmt::format("this LibTorch has no {}", element_name(type)));
}

at::Tensor plain_tensor(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU).contiguous(); }

}  // namespace plumbline
