// Names of Python's and torch's that occur in checkpoints, and what they stand for here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/storage/pickle.h"

namespace plumbline {

inline constexpr const char* kPythonKey = "__python__";

std::string dotted(const PickleNode& global);  // "module.name"; "" when it is no global
bool dict_like(const std::string& name);       // OrderedDict, defaultdict, Counter
bool namespace_like(const std::string& name);  // Namespace, SimpleNamespace
std::optional<at::ScalarType> storage_type(const std::string& name);  // "torch.FloatStorage"
std::string storage_name(at::ScalarType type);                        // "FloatStorage"; "" when there is none

// Little-endian two's complement and "-0x1f".
std::string big_int_text(std::string_view bytes);
std::optional<std::string> big_int_bytes(std::string_view text);

// A text all of whose characters are bytes, as Python pickles bytes in protocol 2.
std::optional<std::vector<std::uint8_t>> latin1_bytes(std::string_view utf8);

}  // namespace plumbline
