// Reads the command line's part of a configuration: `--flag value`, `--flag=value`, `--switch`,
// `--no-switch`,
// `--set section.key=value`, `--config FILE`, and words that are no flags. '-' and '_' are the same inside a
// flag. Every command that takes a configuration hands its arguments here, so all of them accept the same
// flags.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/assignment.h"

namespace plumbline {

struct ParsedFlags {
  Assignments assignments;         // in command order
  std::vector<std::string> words;  // what is neither a flag nor a flag's value; everything after "--"
  std::string file;                // of --config
};

Result<ParsedFlags> parse_flags(const std::vector<std::string>& arguments);

}  // namespace plumbline
