// Compares two runs' records, for the commands that do.
#pragma once

#include <string>

namespace plumbline::cli {

// Prints order, numbers and times; exit code 4 where numbers or order differ.
int diff_record_files(const std::string& a, const std::string& b);

}  // namespace plumbline::cli
