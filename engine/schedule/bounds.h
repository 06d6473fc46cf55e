// Bounds on what a rank may hold at one time: activations, and weight gradients that wait. Orders that break one are
// valid and may run out of memory, or keep weight gradients for ever later (pytorch/torchtitan#773: 90 GB of them).
#pragma once

#include <vector>

#include "engine/schedule/schedule.h"

namespace plumbline {

// Of stage activations on every rank; 0: no bound.
struct HoldingBounds {
  int until_weight_grad = 0;  // an activation is let go by W, or B
  int until_input_grad = 0;   // by I, or B: what I leaves for W is not counted
  int open_weight_grads = 0;  // I whose W is still to come
};

// What each rank holds at its peak; in an overlapped pair the forward counts before the backward lets go.
struct Holdings {
  std::vector<int> until_weight_grad, until_input_grad, open_weight_grads;  // by rank
};
Holdings peak_holdings(const Schedule& schedule);

// Rules "activations" and "weight-queue": the first action of a rank that exceeds a bound, one finding a rank and
// bound; it says the rank's peak. Computations that are not in the schedule's range are passed over.
std::vector<ScheduleFinding> check_bounds(const Schedule& schedule, const HoldingBounds& bounds);

}  // namespace plumbline
