#include "engine/base/shell_line.h"

#include <string_view>

namespace plumbline {

std::string shell_line(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'') line += "'\\'";  // ends the quotes, and gives one that is none
      line += c;
    }
    line += '\'';
  }
  return line;
}

}  // namespace plumbline
