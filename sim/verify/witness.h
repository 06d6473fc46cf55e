// Witness: what a stuck traversal waits for, as the finding of a deadlock. Nodes are the operations that are
// in execution and those whose connection is being set up; what lies between them is told in the reasons.
#pragma once

#include "sim/verdict.h"
#include "sim/verify/cold.h"
#include "sim/verify/progress.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

Finding witness(const CheckWorld& world, const Progress& progress, const ColdConnect& cold, Arm arm);

}  // namespace plumbline::verify
