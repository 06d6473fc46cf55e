// The loop that executes one step on a CudaBackend: hosts go on in turn until all wait, then it waits for the device.
// Nothing else blocks. When nothing has completed and no host has moved for the timeout, the run stands still: the
// hosts' positions become a wait-for graph by the simulator's rules (sim/positions.h), the transport is aborted,
// streams drain, and the step ends as not completed, with the finding.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/backend.h"
#include "engine/runtime/run_record.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"

namespace plumbline::cuda {

// What the loop knows of time.
class HostClock {
 public:
  virtual ~HostClock() = default;
  virtual Nanoseconds now() = 0;
  // Nothing to do: sleeps a little.
  virtual void idle() = 0;
};

// The steady clock, counted from its making; sleeps tens of microseconds.
std::unique_ptr<HostClock> steady_clock();

struct DriverOptions {
  Nanoseconds timeout = Nanoseconds{600} * 1000000000;
  NcclModel model;  // what the explanation of a standstill assumes
};

class CudaDriver {
 public:
  // All outlive this.
  CudaDriver(CudaBackend& backend, HostClock& clock, DriverOptions options)
      : backend_(&backend), clock_(&clock), options_(options) {}

  // The Program of the steps to come. Waits until communicators are there: kTimeout when they are not in time.
  Status set_program(const LinkedProgram& linked);
  // An error is a kernel's or a call's; a standstill is an outcome. After either, nothing more runs.
  Result<SimStep> run_step(int step, RunRecord& record);

 private:
  struct Hosts;
  Status abort_and_drain();
  void add_crossed(const Hosts& hosts, std::vector<Finding>& findings) const;
  Result<Finding> explain(const Hosts& hosts) const;

  CudaBackend* backend_;
  HostClock* clock_;
  DriverOptions options_;
  const LinkedProgram* linked_ = nullptr;
  std::array<std::vector<Finding>, 2> crossed_;  // by arm: messages whose ends carry different labels
  bool ended_ = false;
};

}  // namespace plumbline::cuda
