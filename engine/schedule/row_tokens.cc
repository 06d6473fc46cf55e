#include "engine/schedule/row_tokens.h"

namespace plumbline {

std::vector<std::vector<RowToken>> split_rows(std::string_view text, std::string_view separators) {
  const std::string breaks = std::string(" \t\r\n") + std::string(separators);
  std::vector<std::vector<RowToken>> rows;
  std::size_t line_begin = 0;
  while (line_begin < text.size()) {
    const std::size_t line_end = std::min(text.find('\n', line_begin), text.size());
    rows.emplace_back();
    for (std::size_t at = line_begin; at < line_end;) {
      const std::size_t begin = text.find_first_not_of(breaks, at);
      if (begin == std::string_view::npos || begin >= line_end) break;
      const std::size_t end = std::min(text.find_first_of(breaks, begin), line_end);
      rows.back().push_back(RowToken{text.substr(begin, end - begin), static_cast<int>(rows.size()),
                                     static_cast<int>(begin - line_begin) + 1});
      at = end;
    }
    line_begin = line_end + 1;
  }
  return rows;
}

}  // namespace plumbline
