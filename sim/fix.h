// Fix: a small change of a Program that a deadlock's circle suggests, and that re-simulation proves. What is
// tried, on the ranks of the circle: calls that stand one behind the other on a communicator, put into one
// group; and two such calls in the opposite order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/program/program.h"
#include "engine/runtime/time_model.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline {

struct Fix {
  std::string words;  // "put 0SEND_F1 to rank 1 and 2RECV_F0 from rank 1 into one group on rank 0, and ..."
  Program program;    // changed so
};

// `finding` is a deadlock of `program` with a circle; nothing: none of the changes helps. A change helps when the
// Program then completes without findings in all of `modes` and passes the checker's buffer rules.
std::optional<Fix> find_fix(const Program& program, const Finding& finding,
                            const std::vector<NcclModel>& modes, const TimeModel& time);

}  // namespace plumbline
