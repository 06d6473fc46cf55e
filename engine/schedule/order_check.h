// The part of validate_schedule that looks at order: on one rank, and over all ranks together.
#pragma once

#include <vector>

#include "engine/schedule/schedule.h"
#include "engine/schedule/step_index.h"

namespace plumbline::detail {

// Rules "pair" (halves that need each other), "order" and "cycle". Computations that are not listed count as
// done.
void check_order(const Schedule& schedule, const StepIndex& index, std::vector<ScheduleFinding>* findings);

}  // namespace plumbline::detail
