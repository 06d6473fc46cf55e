// Simulator: a Backend that executes all ranks in one process under a NcclModel in virtual time (integer
// nanoseconds, ties broken by rank and order of issue), and the driver that runs a Program on it.
//
// With workers, kernels run at their virtual start and messages carry bytes; without, the same Program is
// only timed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/program/link.h"
#include "engine/runtime/backend.h"
#include "engine/runtime/reduce_nccl.h"
#include "engine/runtime/run_record.h"
#include "engine/runtime/time_model.h"
#include "engine/runtime/worker.h"
#include "sim/chooser.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline {

struct SimOptions {
  NcclModel model;
  TimeModel time;
  CollectiveNumerics numerics;
  bool record_events = true;
  bool record_memory = true;
  // Without workers: the value that a Read of this variable yields (default 0: no overflow).
  double read_value = 0.0;
  // Decides where the order of steps matters (sim/explore.h), and outlives the simulator. Without one, hosts go
  // on in the order of the threads, and kernels get processors in the order in which they ask.
  Chooser* chooser = nullptr;
};

// Outcome of one step.
struct SimStep {
  bool completed = true;
  std::vector<Finding>
      findings;  // deadlock, label or size mismatch at the moment of matching, failed kernels
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  std::vector<std::vector<std::uint8_t>> decisions;  // per thread
};

class Simulator {
 public:
  // `linked` outlives the simulator; `workers` is empty (timing only) or has one entry a thread (not owned).
  Simulator(const LinkedProgram& linked, SimOptions options, std::vector<Worker*> workers = {});
  ~Simulator();

  // Switches to another Program of the same run (evaluation, changed M); persistent slots and virtual time go
  // on.
  void set_program(const LinkedProgram& linked);

  // Executes one step from the current virtual time and appends its events and memory points to `record` as
  // step `step`. The error is for failures of a worker; a deadlock is a completed = false with its finding.
  Result<SimStep> run_step(int step, RunRecord& record);

  Backend& backend();

 private:
  struct World;
  std::unique_ptr<World> world_;
};

// Times a Program without tensors under a model: one step, fresh simulator.
Result<ModeVerdict> simulate(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time);

}  // namespace plumbline
