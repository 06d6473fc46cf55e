// Colours of the static pictures (SVG, DOT, terminal): Okabe-Ito, light theme. The page has the same values
// in page.css.
#pragma once

#include <cstdint>
#include <string>

#include "reports/event_kind.h"

namespace plumbline {

struct Colour {
  std::uint8_t r = 0;
  std::uint8_t g = 0;
  std::uint8_t b = 0;
  bool operator==(const Colour&) const = default;
};

// Recomputation has a colour of its own in every picture.
constexpr Colour kRecomputeColour{0xF0, 0xE4, 0x42};

// Chunk k of a rank with `chunks` chunks is the kind's colour, k steps lighter.
Colour kind_colour(WorkKind kind, int chunk = 0, int chunks = 1);
// Black or white, whichever is easier to read on `background`.
Colour ink_on(Colour background);
std::string hex_colour(Colour colour);  // "#0072b2"

}  // namespace plumbline
