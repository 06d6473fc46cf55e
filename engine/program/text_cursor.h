// Reads the Program's text line by line and word by word, knowing the place of each word.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "engine/base/result.h"

namespace plumbline {

class TextCursor {
 public:
  TextCursor(std::string_view text, std::string file) : rest_(text), file_(std::move(file)) {}

  // Moves to the next line that holds a word; '#' at the start of a line begins a comment. False at the end.
  bool next_line() {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      line_ = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
      ++number_;
      if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
      at_ = 0;
      skip_blanks();
      if (at_ < line_.size() && line_[at_] != '#') return true;
    }
    return false;
  }

  // The next word of the line; empty at its end.
  std::string_view word() {
    skip_blanks();
    start_ = at_;
    while (at_ < line_.size() && !blank(line_[at_])) ++at_;
    return line_.substr(start_, at_ - start_);
  }

  // What is left of the line, without blanks around it.
  std::string_view rest_of_line() {
    skip_blanks();
    start_ = at_;
    std::string_view rest = line_.substr(at_);
    while (!rest.empty() && blank(rest.back())) rest.remove_suffix(1);
    at_ = line_.size();
    return rest;
  }

  // The place of the last word.
  Where where() const { return {file_, number_, static_cast<int>(start_) + 1}; }

 private:
  static bool blank(char c) { return c == ' ' || c == '\t'; }
  void skip_blanks() {
    while (at_ < line_.size() && blank(line_[at_])) ++at_;
  }

  std::string_view rest_;
  std::string file_;
  std::string_view line_;
  int number_ = 0;
  std::size_t at_ = 0;
  std::size_t start_ = 0;
};

}  // namespace plumbline
