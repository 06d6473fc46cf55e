// Tensors and raw memory: element types of both worlds, views of slots. For LibTorch code only.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/base/assert.h"
#include "engine/base/dtype.h"

namespace plumbline {

inline DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kF32;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    default:
      assertion_failed("dtype_of", __FILE__, __LINE__, "not a precision of plumbline");
  }
}

inline at::ScalarType scalar_type_of(DType type) {
  switch (type) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF64:
      return at::kDouble;
    case DType::kI64:
      return at::kLong;
    default:
      assertion_failed("scalar_type_of", __FILE__, __LINE__, "no tensor type for it");
  }
}

}  // namespace plumbline
