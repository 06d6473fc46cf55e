// Small text helpers shared by every parser: strict numbers, splitting, and the nearest known name for a message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);

// Whole text, decimal only (an optional '-'), no blanks, no overflow.
Result<std::int64_t> parse_integer(std::string_view text);
// Whole text, decimal or 0x hexadecimal.
Result<std::uint64_t> parse_unsigned(std::string_view text);
// Whole text; finite values only; "1e-3" and "0.5" are accepted in every locale.
Result<double> parse_double(std::string_view text);

// The candidate closest to `name` by edit distance ('-' equals '_'), or empty when none is within a third of
// its length.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// Reads a whole file; the error names the path and the system's reason.
Result<std::string> read_file(const std::string& path);
// Writes a whole file, replacing it.
Status write_file(const std::string& path, std::string_view content);

}  // namespace plumbline
