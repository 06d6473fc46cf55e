// LibTorch's element types and the files'.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/storage/element_type.h"

namespace plumbline {

// Refuses (kUnsupported) types that files do not have: quantized and complex ones but complex64.
Result<ElementType> element_type_of(at::ScalarType type);
Result<at::ScalarType> scalar_type_of(ElementType type);

// On the CPU, contiguous, without history: the tensor itself where it is so already.
at::Tensor plain_tensor(const at::Tensor& tensor);

}  // namespace plumbline
