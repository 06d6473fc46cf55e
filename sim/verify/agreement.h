// Agreement: ranks that communicate with each other inside an arm of a decision must have taken it together.
// A decision is agreed when its variable was last written by an all-reduce over a communicator that holds
// every rank which the operations inside the arms connect, directly or through others, to the deciding one.
#pragma once

#include <vector>

#include "sim/verdict.h"
#include "sim/verify/host_pass.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

std::vector<Finding> check_agreement(const CheckWorld& world,
                                     const ScratchVector<const RangeFacts*>& facts_of);

}  // namespace plumbline::verify
