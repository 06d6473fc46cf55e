// Plan: how the sends and receives of one group and communicator are cut into pieces that run one after another
// on their rank (N13, N14).
//
// A work item is a pair: the e-th send to place p + r and the e-th receive from place p - r of the communicator,
// for r = 0 .. n-1 inside of e = 0, 1, ... (e is the epoch, r the round); either may be absent.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/nccl_model.h"

namespace plumbline::sim {

struct PlannedOp {
  std::int32_t peer = 0;  // place in the communicator
  bool send = false;
};

struct PlanPiece {
  std::vector<std::uint32_t> ops;  // indices into the given operations
  bool kernel = false;             // begins a kernel; false: a batch of the same kernel
};

// The pieces in the order of their execution. Operations of one peer and direction keep their order. Without a
// limit it is one piece, with the operations as given.
std::vector<PlanPiece> plan_pieces(const std::vector<PlannedOp>& ops, std::int32_t place,
                                   std::int32_t members, const GroupProgress& progress);

}  // namespace plumbline::sim
