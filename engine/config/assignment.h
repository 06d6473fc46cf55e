// One value given by one source, before it is stored: what the TOML reader, the environment and the command
// line have in common. The loader applies assignments in order of precedence.
#pragma once

#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/config/origins.h"

namespace plumbline {

struct Assignment {
  const Option* option = nullptr;  // never null in a list
  std::string text;
  Origin origin;
  bool append = false;  // a repeatable flag adds to a list; every other form replaces it
};

using Assignments = std::vector<Assignment>;

}  // namespace plumbline
