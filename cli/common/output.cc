#include "cli/common/output.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/common/exit_codes.h"
#include "engine/base/text.h"

namespace plumbline::cli {
namespace {

ColorMode& color_mode() {
  static ColorMode mode = ColorMode::kAuto;
  return mode;
}

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

bool color_on(int descriptor) {
  if (color_mode() != ColorMode::kAuto) return color_mode() == ColorMode::kAlways;
  if (!variable("NO_COLOR").empty()) return false;
  const std::string_view forced = variable("CLICOLOR_FORCE");
  if (!forced.empty() && forced != "0") return true;
  if (variable("TERM") == "dumb") return false;
  return ::isatty(descriptor) == 1;
}

void write(std::FILE* stream, std::string_view text) {
  // Errors are collected by the stream and looked at once, in finish_output().
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), stream);
  static_cast<void>(written);
}

void write_labelled(std::string_view label, Paint color, std::string_view text) {
  // stdout first, so that the two streams keep their order on a terminal.
  std::fflush(stdout);
  write(stderr, fmt::format("{} {}\n", paint(label, color, color_on_stderr()), text));
}

// Columns a UTF-8 text takes, one a code point.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines{""};
  for (const std::string_view word : split(text, ' ')) {
    const bool fits = lines.back().empty() || columns(lines.back()) + 1 + columns(word) <= width;
    if (!fits) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string pad(std::string_view text, std::size_t width) {
  const std::size_t used = columns(text);
  return std::string(text) + std::string(used < width ? width - used : 0, ' ');
}

}  // namespace

void set_color_mode(ColorMode mode) { color_mode() = mode; }
bool color_on_stdout() { return color_on(STDOUT_FILENO); }
bool color_on_stderr() { return color_on(STDERR_FILENO); }

std::string paint(std::string_view text, Paint color, bool on) {
  constexpr std::array<std::string_view, 7> kCodes{"", "1", "2", "31", "32", "33", "34"};
  if (!on || color == Paint::kNone) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(color)], text);
}

void print(std::string_view text) { write(stdout, text); }
void print_line(std::string_view text) {
  write(stdout, text);
  write(stdout, "\n");
}

void hint(std::string_view text) {
  std::fflush(stdout);
  write(stderr, fmt::format("{}\n", text));
}
void warn(std::string_view text) { write_labelled("warning:", Paint::kYellow, text); }

int report(const Error& error) {
  write_labelled("error:", Paint::kRed, error.text());
  return exit_code(error.code);
}

int report(const std::vector<Error>& errors) {
  for (const Error& error : errors) report(error);
  return errors.empty() ? kExitHolds : exit_code(errors.front().code);
}

bool finish_output() {
  const bool flushed = std::fflush(stdout) == 0;
  return flushed && std::ferror(stdout) == 0;
}

std::string layout(const Table& table, int width) {
  std::vector<std::vector<std::string>> rows{table.header};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  std::vector<std::size_t> widths(table.header.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < widths.size() && i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::size_t indent = 0;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) indent += widths[i] + 2;
  const std::size_t line = static_cast<std::size_t>(std::max(width, 20));
  const std::size_t last = line > indent + 20 ? line - indent : 20;
  std::string out;
  for (const auto& row : rows) {
    std::string text;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i)
      text += pad(i < row.size() ? row[i] : "", widths[i]) + "  ";
    const std::vector<std::string> lines =
        wrap(row.size() == widths.size() && !row.empty() ? row.back() : "", last);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string full = (i == 0 ? text : std::string(indent, ' ')) + lines[i];
      full.erase(full.find_last_not_of(' ') + 1);
      out += full + "\n";
    }
  }
  return out;
}

int output_width() {
  const Result<std::int64_t> given = parse_integer(variable("COLUMNS"));
  if (given && *given >= 20 && *given <= 1000) return static_cast<int>(*given);
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) return size.ws_col;
  return 80;
}

}  // namespace plumbline::cli
