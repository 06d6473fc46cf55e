// Reads a RunRecord from a file, for the commands that show one.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/run_record.h"

namespace plumbline::cli {

// True when the file begins like a record. False as well when it cannot be read.
bool is_record_file(const std::string& path);

// A record that was cut off is read up to its last whole step, with a warning. Several files are the parts of
// one run.
Result<RunRecord> read_record(const std::vector<std::string>& paths);

}  // namespace plumbline::cli
