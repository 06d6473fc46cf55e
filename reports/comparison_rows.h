// What text, SVG and page of a comparison share: the figures of a schedule in words, and its boxes.
#pragma once

#include <string>
#include <vector>

#include "reports/comparison.h"
#include "reports/event_kind.h"

namespace plumbline::detail {

struct Figures {
  std::string makespan, bubble, stage_time, stage_bubble, peak, bytes;
};
Figures figures_of(const ComparedSchedule& one);
const std::vector<std::string>& figure_titles();

// One computation as it is drawn. A backward that begins with recomputation is two boxes.
struct WorkBox {
  Nanoseconds start = 0, end = 0;
  WorkKind kind = WorkKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  bool pair = false;  // half of an overlapped pair: the forward is drawn above, the backward below
  bool recompute = false;
};
std::vector<WorkBox> boxes_of(const ComparedSchedule& one, int rank);
int chunks_of(const Schedule& schedule);

Nanoseconds longest_of(const std::vector<ComparedSchedule>& schedules);

}  // namespace plumbline::detail
