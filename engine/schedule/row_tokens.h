// Words of a text that lists a row a rank, with their places: what the readers of other projects' order strings
// share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

struct RowToken {
  std::string_view text;  // points into the text
  int line = 0;
  int column = 0;  // of its first character, from 1

  Where where(const std::string& file) const { return Where{file, line, column}; }
};

// The words of every line, split at any of `separators`, blanks, tabs and a carriage return at the line's end. An
// empty line is a row without words; the line end after the last row does not begin another one.
std::vector<std::vector<RowToken>> split_rows(std::string_view text, std::string_view separators = "");

}  // namespace plumbline
