#include "reports/terminal_colour.h"

#include <fmt/format.h>

#include "reports/palette.h"

namespace plumbline {
namespace {

std::string wrap(std::string_view text, std::string_view code, TerminalColour colour) {
  if (colour == TerminalColour::kPlain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace

std::string paint_kind(std::string_view text, WorkKind kind, int chunk, int chunks, TerminalColour colour) {
  if (colour == TerminalColour::kAnsi16) {
    // Blue, yellow, green, magenta, red, cyan, cyan, white, bright yellow; bright for later chunks.
    constexpr int kBackground[kWorkKinds] = {44, 43, 42, 45, 41, 46, 46, 47, 103};
    const int background =
        kBackground[static_cast<std::size_t>(kind)] + (chunk > 0 && kind != WorkKind::kRecompute ? 60 : 0);
    return wrap(text, fmt::format("{};{}", kind == WorkKind::kForward && chunk == 0 ? 97 : 30, background),
                colour);
  }
  const Colour fill = kind_colour(kind, chunk, chunks);
  const Colour ink = ink_on(fill);
  return wrap(text, fmt::format("38;2;{};{};{};48;2;{};{};{}", ink.r, ink.g, ink.b, fill.r, fill.g, fill.b),
              colour);
}

std::string paint_colour(std::string_view text, Colour fill, TerminalColour colour) {
  if (colour == TerminalColour::kAnsi16) return wrap(text, "30;103", colour);
  const Colour ink = ink_on(fill);
  return wrap(text, fmt::format("38;2;{};{};{};48;2;{};{};{}", ink.r, ink.g, ink.b, fill.r, fill.g, fill.b),
              colour);
}

std::string paint_dim(std::string_view text, TerminalColour colour) { return wrap(text, "2", colour); }
std::string paint_bold(std::string_view text, TerminalColour colour) { return wrap(text, "1", colour); }
std::string paint_good(std::string_view text, TerminalColour colour) { return wrap(text, "1;32", colour); }
std::string paint_bad(std::string_view text, TerminalColour colour) { return wrap(text, "1;31", colour); }

}  // namespace plumbline
