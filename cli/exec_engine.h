// Hands a command over to plumbline-engine, the executable that is linked to LibTorch. plumbline itself is
// not, so that it starts in milliseconds.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace plumbline::cli {

// The engine beside this executable, or the one that PLUMBLINE_ENGINE names. kMissing when there is none to
// execute.
Result<std::string> find_engine();

// Replaces this process by the engine with the same command line. Returns only on failure: the exit code,
// after the error was printed.
int exec_engine(const std::vector<std::string>& arguments);

}  // namespace plumbline::cli
