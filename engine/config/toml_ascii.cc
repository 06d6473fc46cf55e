#include "engine/config/toml_ascii.h"

#include <algorithm>
#include <optional>
#include <string>

namespace plumbline {
namespace {

constexpr std::string_view kMark = "\xef\xbb\xbf";

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

std::size_t run_of(std::string_view text, std::size_t at, char c) {
  const std::size_t end = std::min(text.find_first_not_of(c, at), text.size());
  return end - at;
}

// The place behind a backslash and the blanks and lines that follow it, which toml++ tests one by one.
std::size_t skip_backslash(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \t\n\v\f\r", at + 1), text.size());
}

// The place behind the string that begins at `at` with a quote. Strings that are not closed end with their
// line, or with the text when they have three quotes. `wrong` is set to a character beyond ASCII that stands behind a
// backslash in a string of several lines, or where the next line begins after one.
std::size_t skip_string(std::string_view text, std::size_t at, std::optional<std::size_t>& wrong) {
  const char quote = text[at];
  const std::size_t opening = run_of(text, at, quote);
  if (opening == 2) return at + 2;  // an empty string
  const bool multi_line = opening >= 3;
  at += multi_line ? 3 : 1;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\\' && quote == '"') {
      const std::size_t behind = skip_backslash(text, at);
      if (multi_line && behind < text.size() && !is_ascii(text[behind])) {
        wrong = behind;
        return behind;
      }
      at += 2;
    } else if (c == quote && !multi_line) {
      return at + 1;
    } else if (c == quote) {
      // Up to two quotes may stand before the three that close.
      const std::size_t run = run_of(text, at, quote);
      if (run >= 3) return at + std::min<std::size_t>(run, 5);
      at += run;
    } else if (c == '\n' && !multi_line) {
      return at;
    } else {
      ++at;
    }
  }
  return text.size();
}

Where place(std::string_view text, std::size_t at, const std::string& file) {
  const std::string_view before = text.substr(0, at);
  const std::size_t line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::string_view row = before.substr(before.find_last_of('\n') + 1);
  // Columns count characters: continuation bytes of UTF-8 have no column of their own.
  const auto columns = std::count_if(row.begin(), row.end(),
                                     [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; });
  return Where{file, static_cast<int>(line) + 1, static_cast<int>(columns) + 1};
}

}  // namespace

Status require_ascii_outside_strings(std::string_view text, const std::string& file) {
  constexpr std::string_view kBlanks = " \t";
  std::size_t at = text.substr(0, kMark.size()) == kMark ? kMark.size() : 0;
  std::string open;      // brackets that are open on the right of a '='
  bool value = false;    // a value begins here
  bool in_bare = false;  // inside a value without quotes: a quote begins no string there
  while (at < text.size()) {
    const char c = text[at];
    if (!is_ascii(c)) {
      return fail(ErrorCode::kParse,
                  "a character beyond ASCII stands outside strings and comments — put quotes around the text",
                  place(text, at, file));
    }
    const bool ends = c == '\n' || c == '\r' || c == ',' || c == ']' || c == '}' || c == '#';
    if (in_bare && !ends && kBlanks.find(c) == kBlanks.npos) {
      ++at;
      continue;
    }
    in_bare = false;
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '"' || c == '\'') {
      std::optional<std::size_t> wrong;
      at = skip_string(text, at, wrong);
      if (wrong) {
        return fail(ErrorCode::kParse,
                    "a character beyond ASCII follows a backslash — put it before the backslash, or write it "
                    "as \\uXXXX",
                    place(text, *wrong, file));
      }
      value = false;
      continue;
    }
    ++at;
    const bool nested = !open.empty();
    if ((c == ']' || c == '}') && nested) {
      open.pop_back();
    } else if ((c == '[' || c == '{') && (value || nested)) {
      open.push_back(c);
      value = c == '[';
    } else if (c == ',') {
      value = nested && open.back() == '[';
    } else if (c == '\n' && !nested) {
      value = false;
    } else if (value && !ends && kBlanks.find(c) == kBlanks.npos) {
      in_bare = true;
      value = false;
    } else if (c == '=') {
      value = true;
    }
  }
  return {};
}

}  // namespace plumbline
