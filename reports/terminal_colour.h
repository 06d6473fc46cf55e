// Escape sequences for terminals, in one place. With TerminalColour::kPlain every function returns its text
// unchanged.
#pragma once

#include <string>
#include <string_view>

#include "reports/event_kind.h"
#include "reports/palette.h"
#include "reports/terminal.h"

namespace plumbline {

// On the background of the kind; chunks are lighter steps where the terminal has enough colours.
std::string paint_kind(std::string_view text, WorkKind kind, int chunk, int chunks, TerminalColour colour);
// On another background; yellow where the terminal has 16 colours.
std::string paint_colour(std::string_view text, Colour fill, TerminalColour colour);
std::string paint_dim(std::string_view text, TerminalColour colour);
std::string paint_bold(std::string_view text, TerminalColour colour);
std::string paint_good(std::string_view text, TerminalColour colour);  // bold green
std::string paint_bad(std::string_view text, TerminalColour colour);   // bold red

}  // namespace plumbline
