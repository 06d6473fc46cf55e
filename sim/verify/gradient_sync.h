// Gradient synchronisation: does each optimizer step see every gradient once? Progress, labels and buffers do not tell
// - a reduction that is left out on all ranks alike, or begins too early, leaves a Program that runs to its end and
// trains something else. In Programs that step the optimizer, on the arm that steps:
//
//   zeroed      the gradients of a stage are set to zero before the first backward adds to them
//   complete    nothing adds to them once their reduction, their unscaling or the step has begun
//   reduced     when they are unscaled, measured or used, they are the sum over all ranks that add to them - copies of
//               a stage and replicas - each exactly once, all bytes of them
//   unscaled    by all ranks that share them or by none, and once, after the reduction and before the step
//   gathered    parameters that a step leaves in shards are gathered after it or before they are read in the next one,
//               all bytes of them, and not after they were read
//
// Which rank adds up what is told by sums of one number a rank, as in coverage.h.
#pragma once

#include <vector>

#include "sim/verdict.h"
#include "sim/verify/host_pass.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

// A world that stands for one with several replicas (quotient.h) says how many these are, and how many members each
// communicator has there.
struct SyncReplicas {
  int replicas = 1;
  const std::vector<int>* members = nullptr;
};
// `facts_of[t]`: facts of the range of items of thread t.
std::vector<Finding> check_gradient_sync(const CheckWorld& world,
                                         const ScratchVector<const RangeFacts*>& facts_of,
                                         const SyncReplicas& replicas = {});

}  // namespace plumbline::verify
