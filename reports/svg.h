// A step's timeline as one SVG for papers: text stays text, kinds are classes (restyle by editing the <style>
// block), W is hatched by a pattern, all coordinates are integers. Equal input gives equal bytes.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/runtime/run_record.h"

namespace plumbline {

struct SvgOptions {
  int step = -1;      // -1: the typical step (analysis.h)
  int first_row = 0;  // ranks to draw, inclusive
  int last_row = -1;  // -1: the last rank
  int width = 1200;   // of the whole picture, in SVG units
  int row_height = 24;
  bool communication = true;  // a thin bar under each rank's computations
  bool legend = true;
  std::string title;  // empty: schedule and shape
};

// An error for a step or rows that are not in the record, or more than 100,000 boxes.
Result<std::string> timeline_svg(const RunRecord& record, const SvgOptions& options = {});

// "4-7" or "3" as the first and the last row.
Status parse_rows(std::string_view text, SvgOptions& options);

}  // namespace plumbline
