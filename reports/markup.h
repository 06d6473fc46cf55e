// Text for markup: escaping, and short numbers for axes. Shared by the SVG, HTML and DOT writers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/units.h"

namespace plumbline {

std::string escape_xml(
    std::string_view text);  // & < > " ' ; control characters other than newline and tab become spaces
std::string escape_dot(std::string_view text);  // for a double-quoted DOT string

// At most `most` round times from 0 to `span`, spaced by 1, 2 or 5 times a power of ten.
std::vector<Nanoseconds> axis_ticks(Nanoseconds span, int most);
// A time on an axis whose ticks are `step` apart: "0", "1.5 ms", "20 us". No more digits than the step needs.
std::string axis_label(Nanoseconds time, Nanoseconds step);

}  // namespace plumbline
