// Runs a program with this process's standard streams.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace plumbline::cli {

// Starts `arguments` without a shell and waits; the exit code, 128 + n for a signal n. An error when it
// cannot be started.
Result<int> spawn(const std::vector<std::string>& arguments);

}  // namespace plumbline::cli
