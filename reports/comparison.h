// Several schedules on one time axis: as a table and a picture for terminals, as one SVG, and as a page around it.
// Times are those of the evaluator (schedule/evaluate.h); what real communication adds is not in them. Equal input
// gives equal bytes.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/schedule/evaluate.h"
#include "engine/schedule/schedule.h"
#include "reports/palette.h"
#include "reports/terminal.h"

namespace plumbline {

struct ComparedSchedule {
  std::string name;
  Schedule schedule;
  Evaluation evaluation;
  ActionTimes times;
  std::vector<Bytes> peak_bytes;  // activations, by rank
};

struct ComparisonOptions {
  int width = 80;  // text: columns; SVG and page: units of the picture
  TerminalColour colour = TerminalColour::kPlain;
  int most_ranks = 16;  // drawn in text; the table covers all
  std::string costs;    // one line on what things cost
};

// A row a schedule: both times with their bubbles, most activations and bytes that a rank holds; then the pictures, a
// character a unit of time that is the same for all:
//
//   F B I W   the kind, where no colour tells it; with colour the microbatch's last digit
//   # an overlapped pair   r recomputation   . idle
std::string comparison_text(const std::vector<ComparedSchedule>& schedules, const ComparisonOptions& options);

// An error for more than 100,000 boxes.
Result<std::string> comparison_svg(const std::vector<ComparedSchedule>& schedules,
                                   const ComparisonOptions& options);
// The same in a page without scripts, with the table.
Result<std::string> comparison_html(const std::vector<ComparedSchedule>& schedules,
                                    const ComparisonOptions& options);

std::string comparison_json(const std::vector<ComparedSchedule>& schedules);

}  // namespace plumbline
