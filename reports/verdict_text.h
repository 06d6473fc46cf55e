// A Verdict for people, as text of at most `width` columns: the answer first, then each finding with its
// place and reason, the outcome by mode, and memory by rank.
#pragma once

#include <string>

#include "reports/terminal.h"
#include "reports/wait_cycle.h"
#include "sim/verdict.h"

namespace plumbline {

struct VerdictTextOptions {
  int width = 80;
  TerminalColour colour = TerminalColour::kPlain;
  std::size_t most_findings = 10;  // the rest is counted
  std::size_t most_ranks = 16;     // memory rows; the largest peaks when there are more ranks
};

std::string render_verdict(const Verdict& verdict, const VerdictTextOptions& options = {});

// "holds: 1f1b completes ..." or "deadlock: ...": the first line alone, without colour.
std::string verdict_headline(const Verdict& verdict);

// Breaks text at blanks into lines of at most `width` columns; every line but the first starts with `indent`
// blanks.
std::string wrap_text(const std::string& text, int width, int indent);

}  // namespace plumbline
