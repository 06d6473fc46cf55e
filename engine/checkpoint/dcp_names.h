// How a distributed checkpoint's metadata names torch's types.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "engine/optim/state_dict.h"

namespace plumbline {

std::string dtype_global(at::ScalarType type);  // "torch.float32"; "" when there is none
// Of a TensorProperties object, whose state is a tuple that begins with the dtype.
std::optional<at::ScalarType> dcp_type(const StateValue& properties);

}  // namespace plumbline
