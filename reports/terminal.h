// Text for terminals: a step's timeline as a grid. All text is returned, nothing is printed.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/runtime/run_record.h"

namespace plumbline {

// kPlain is ASCII without escapes, for pipes and logs.
enum class TerminalColour : std::uint8_t { kPlain, kAnsi16, kTrueColour };

struct TerminalOptions {
  int width = 80;  // columns; the grid continues in further blocks
  TerminalColour colour = TerminalColour::kPlain;
  int step = -1;            // -1: the typical step (analysis.h)
  int most_columns = 2000;  // a longer step is shown in coarser cells
};

// One row a rank, one cell a unit of time, which is the step's shortest F, B, I or W unless that made too
// many cells:
//
//   step 1, one cell = 1 ms
//            0   1   2   3   4   5   6
//   rank 0  F0  F1  F2  F3   .   .  B0
//   rank 1   .  F0  F1  F2  F3   .   .
//
// A cell names the computation that fills most of it, "F3", or "F3.1" for the second chunk of the rank; a
// computation of several cells goes on as "--", idle cells are dots.
Result<std::string> terminal_timeline(const RunRecord& record, const TerminalOptions& options = {});

}  // namespace plumbline
