// RunPlan: the Programs of a training run and which iteration runs which. The number of microbatches may change
// between steps (ramp-up, batch schedule), so there is a training Program for each number that the run reaches;
// beside them what a run executes between its steps.
//
// Every Program of the plan closes what it opens, so any may follow any other. Slots that persist have one name and
// size in all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/num_microbatches.h"
#include "engine/config/run_config.h"
#include "engine/program/lower.h"
#include "engine/program/program.h"

namespace plumbline {

struct RunPlan {
  // Steps with one number of microbatches.
  struct Stretch {
    std::int64_t first = 0;  // iteration, from 0
    NumMicrobatches::Batch batch;
    std::size_t program = 0;  // index into `train`
  };

  std::vector<Program> train;      // by number of microbatches, in order of first use
  std::vector<Stretch> stretches;  // ascending
  std::optional<Program> evaluation;
  std::optional<Program> param_sync;  // with --overlap-param-gather: the gathers after the last step

  const Stretch& stretch_of(std::int64_t iteration) const;
  // Of config.schedule.microbatches, if the run reaches it; the last one otherwise.
  const Program& main() const { return train[main_program]; }
  // All of them, training Programs first.
  std::vector<const Program*> programs() const;

  std::size_t main_program = 0;
};

// Which other Programs than those of training are wanted.
struct RunPlanOptions {
  bool evaluation = false;
  // Where the run begins: a resumed one does in the middle. Stretches count iterations from 0 all the same.
  std::int64_t iteration = 0;
  std::int64_t consumed = 0;  // samples before it
  LowerOptions lowering;      // of the training Programs
};

// The configurations of the run's steps, one for each number of microbatches in order of first use.
Result<std::vector<RunConfig>> step_configs(const RunConfig& config);

// The configuration must have passed validate(). A run that has no step left gets the Program of the step that would
// come next. A listed schedule (CSV) has its own number of microbatches.
Result<RunPlan> plan_run(const RunConfig& config, const ModelSizes& sizes,
                         const RunPlanOptions& options = {});

}  // namespace plumbline
