// Quotient: a Program whose data-parallel replicas do the same is proved on one of them.
//
// Theorem. Let every rank execute the items of the rank with data-parallel coordinate 0 beside it; let every
// communicator either lie within one replica, each replica having the same ones in the same order, or hold with a rank
// all of its replicas; let messages and rooted collectives stay within replicas, and costs not depend on the replica.
// Then exchanging replicas maps executions to executions, and by confluence (sim/explore.h) there is one outcome: it
// is the same on all replicas, at the same virtual times, and a collective over whole sets of replicas is complete
// when it is in one of them. So the Program with one replica, whose collectives take the time of all members, has the
// verdict of the whole. Tested against the full walk (tests/sim/verify/quotient_test.cc).
#pragma once

#include <vector>

#include "sim/verify/check.h"

namespace plumbline {

// The Verdict that check_program() gives; where it does not hold, it is from there, with its witness among all ranks.
// Refused (kUnsupported) when a condition above is not met, which says which. Decisions need an all-reduce over
// replicas when operations in their arms are over replicas.
Result<Verdict> check_quotient(const Program& program, const CheckOptions& options = {});

// Independent Programs, on up to `workers` threads (0: as many as the machine has); the verdicts are in their order.
std::vector<Result<Verdict>> check_programs(const std::vector<Program>& programs,
                                            const CheckOptions& options = {}, unsigned workers = 0);

}  // namespace plumbline
