// Runs a program and keeps what it prints.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace plumbline::cli {

// The standard output of `arguments`, started without a shell, its other streams on /dev/null. An error when
// it cannot be started, does not end with exit code 0, or prints more than a megabyte.
Result<std::string> capture(const std::vector<std::string>& arguments);

}  // namespace plumbline::cli
