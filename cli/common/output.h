// Where a command's text goes. Results go to stdout; errors, warnings, hints and progress go to stderr.
// Colour is decided per stream: --color=always|never wins, then NO_COLOR (any text: off), CLICOLOR_FORCE (not
// 0: on), TERM=dumb (off), and last whether the stream is a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline::cli {

enum class ColorMode : std::uint8_t { kAuto, kAlways, kNever };

// Of --color; set once, before the first output.
void set_color_mode(ColorMode mode);
bool color_on_stdout();
bool color_on_stderr();

enum class Paint : std::uint8_t { kNone, kBold, kDim, kRed, kGreen, kYellow, kBlue };
// The text between the escape sequences of a colour, or as it is when `on` is false.
std::string paint(std::string_view text, Paint color, bool on);

void print(std::string_view text);       // stdout, as it is
void print_line(std::string_view text);  // stdout, with a line end
void hint(std::string_view text);        // stderr, one line
void warn(std::string_view text);        // stderr: "warning: text"
// stderr: "error: file:line:column: message"; returns the exit code that belongs to it.
int report(const Error& error);
// All of them; the exit code of the first.
int report(const std::vector<Error>& errors);

// Flushes stdout; false when something could not be written, a full disk for example.
bool finish_output();

// Columns separated by two blanks, the first row a header. The last column is wrapped to keep lines within
// `width`.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
std::string layout(const Table& table, int width = 80);

// COLUMNS or the terminal's width for stdout, 80 where neither is known.
int output_width();

}  // namespace plumbline::cli
