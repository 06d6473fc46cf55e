// Prints a Verdict as check and sim do.
#pragma once

#include "reports/terminal.h"
#include "sim/verdict.h"

namespace plumbline::cli {

void print_verdict(const Verdict& verdict, bool json);

// What stdout can show: by --color and the environment, with COLORTERM for more than 16 colours.
TerminalColour stdout_colour();

}  // namespace plumbline::cli
