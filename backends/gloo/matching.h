// What can be said of a Program's messages before any is sent. Gloo does not know sizes or labels of the other
// end, and a larger message than its receive expects would overwrite memory; but every rank has the whole
// Program, so both ends are compared by it, with the checker's rules.
#pragma once

#include <array>
#include <vector>

#include "engine/program/link.h"
#include "sim/verdict.h"

namespace plumbline::gloo {

struct Matching {
  // Labels that differ between the two ends, by the arm that is taken: [0] no, [1] yes (or no arm at all).
  std::array<std::vector<Finding>, 2> labels;
};

// The error is for ends that Gloo could not bring together: of different size, or collectives that differ.
// Operations without a counterpart are left to the run, which hangs as it would with NCCL.
Result<Matching> match(const LinkedProgram& linked);

}  // namespace plumbline::gloo
