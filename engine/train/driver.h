// StepDriver: who executes the Programs of a run, step after step. The trainer is handed one and does not
// know whether a simulator, a process group or a GPU is behind it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/program/link.h"
#include "engine/runtime/run_record.h"
#include "engine/runtime/worker.h"
#include "sim/simulator.h"

namespace plumbline {

class StepDriver {
 public:
  virtual ~StepDriver() = default;
  virtual std::string name() const = 0;  // RunRecord::backend
  virtual std::string mode() const = 0;  // what a verdict calls the conditions, "rendezvous+free+warm"
  // The Program of the steps to come; outlives them.
  virtual void set_program(const LinkedProgram& linked) = 0;
  // Executes one step and appends its events and memory points to `record`. A step that cannot end is an
  // outcome (completed = false with its findings); the error is a worker's.
  virtual Result<SimStep> run_step(int step, RunRecord& record) = 0;
};

// docs/exit-codes.md: 0, 3 of a deadlock, 4 of anything else that was found.
int exit_code_of(const SimStep& step);

// `workers`: one a thread of the Program, not owned.
using DriverFactory = std::function<std::unique_ptr<StepDriver>(const RunConfig&, const LinkedProgram&,
                                                                std::vector<Worker*> workers)>;

// All ranks in this process, in virtual time, under [sim] and [time] of the configuration.
DriverFactory simulated();

}  // namespace plumbline
