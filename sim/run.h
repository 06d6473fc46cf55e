// simulate_run: a configuration's Program, step after step, timed but without tensors - what `plumbline sim`
// shows.
#pragma once

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/program/program.h"
#include "engine/runtime/run_record.h"
#include "sim/verdict.h"

namespace plumbline {

struct SimOutcome {
  RunRecord record;
  Verdict verdict;  // one mode, the configuration's; findings of all steps; peak memory by rank
};

// Runs `steps` steps under config.sim and config.time. Connections stay up from step to step. A step that
// does not complete is the last one; its record keeps what happened before, and the verdict.
Result<SimOutcome> simulate_run(const RunConfig& config, const Program& program, int steps);

}  // namespace plumbline
