// Reads a TOML configuration: sections and keys of the option table (options.h), nothing else. Unknown
// sections and keys, duplicate keys and values of the wrong type are refused with file, line and column.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/config/assignment.h"

namespace plumbline {

// `file` only names the text in messages. Values are checked for their TOML type here and for their content
// by the loader.
Result<Assignments> read_toml(std::string_view text, const std::string& file);

}  // namespace plumbline
