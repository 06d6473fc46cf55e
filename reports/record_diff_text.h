// A RecordDiff as text for the terminal.
#pragma once

#include <string>

#include "engine/runtime/record_diff.h"

namespace plumbline {

// Lines without a final line end: what differs in the headers, numbers, order, times.
std::string record_diff_text(const RecordDiff& diff, const std::string& a, const std::string& b);

}  // namespace plumbline
