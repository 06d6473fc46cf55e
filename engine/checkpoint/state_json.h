// State that is not a tensor, as JSON that keeps kinds apart and numbers to the bit
// (docs/checkpoint-format.md). Tensors inside are set aside under keys of their own.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/optim/state_dict.h"
#include "engine/storage/strict_json.h"

namespace plumbline {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Tensors get the keys "object:<key>#0", "#1", ... in the order they come; an undefined one is refused. Texts
// that are not UTF-8 are kept as such.
Result<JsonValue> state_to_json(const std::string& key, const StateValue& value, NamedTensors& tensors);

// `tensor(key)` finds what was set aside.
Result<StateValue> state_from_json(const std::string& key, const JsonValue& value,
                                   const std::function<Result<at::Tensor>(const std::string&)>& tensor);

}  // namespace plumbline
