// Rows say who computes what; from them follows whether several pipelines run over the same ranks.
#pragma once

#include "engine/schedule/schedule.h"

namespace plumbline::detail {

// Several pipelines, each with its own copy of every stage, are assumed where some stage is computed on more
// than one rank and the rows fit that entirely: each microbatch has one rank for each stage, these placements
// are few and shared by equally many microbatches, and each spreads the stages evenly over all ranks.
// Otherwise the schedule is left as it is: one pipeline, of which validate_schedule reports what is misplaced.
// Linear in actions, and in stages times microbatches.
void infer_pipelines(Schedule& schedule);

}  // namespace plumbline::detail
