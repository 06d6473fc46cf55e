// TOML allows characters beyond ASCII in strings and comments only. toml++ 3.3 tests other places with a
// generated range check that runs into undefined behaviour for common letters (U+00E9 for one), so they are
// looked for before it reads. It tests likewise what follows a backslash in a string of several lines, where the
// text goes on after the blanks; there they are refused too, though TOML allows them.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace plumbline {

// Refuses the first byte above 0x7f outside strings and comments, and after a backslash; a byte order mark at
// the beginning is allowed. Text that is no TOML for another reason passes at least up to the place where a TOML
// reader must refuse it.
Status require_ascii_outside_strings(std::string_view text, const std::string& file);

}  // namespace plumbline
