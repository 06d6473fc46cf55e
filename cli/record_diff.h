// Compares two runs' records, for the commands that do.
#pragma once

#include <string>

namespace plumbline::cli {

// Prints order, numbers and times; exit code 4 where numbers differ by more than `tolerance` ("bitwise", "derived" or a
// relative difference; engine/runtime/tolerance.h), or the order differs.
int diff_record_files(const std::string& a, const std::string& b, const std::string& tolerance);

// For --tolerance of the commands that compare.
inline constexpr const char* kToleranceHelp =
    "of two records' losses and gradient norms: bitwise, derived (from the number of summands and the "
    "precision) or a "
    "relative difference";

}  // namespace plumbline::cli
