// From the last words of the ranks to one explanation, made by the simulator's own code (sim/positions.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/program/run_plan.h"
#include "engine/runtime/run_record.h"
#include "sim/nccl_model.h"
#include "sim/positions.h"
#include "sim/verdict.h"

namespace plumbline::processes {

struct StallReport {
  Stall stall;
  Verdict verdict;  // with the deadlock, if it is one
  int step = -1;
  std::vector<std::string> lines;  // each rank's place, in words
};

// `words`: by rank, as position_json() writes them; ranks may be missing. `model`: the rules that the run was under.
// The error is for words that do not fit the plan.
Result<StallReport> explain_stall(const RunConfig& config, const RunPlan& plan, const NcclModel& model,
                                  const std::map<Rank, std::string>& words);

}  // namespace plumbline::processes
