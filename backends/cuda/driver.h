// The loop that executes one step on a CudaBackend: hosts go on in turn until all wait, then it waits for the device.
// Nothing else blocks. When nothing has completed and no host has moved for the timeout, the run stands still: the
// hosts' positions become a wait-for graph by the simulator's rules (sim/positions.h), the transport is aborted,
// streams drain, and the step ends as not completed, with the finding.
//
// Where a process serves one rank, it cannot explain that alone: then the driver shows in a RankStatus where its host
// stands, a watchdog looks on, and the driver goes on until it is told that the run is given up.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/backend.h"
#include "engine/runtime/rank_status.h"
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

// The steady clock, counted from its making or from `epoch`; sleeps tens of microseconds.
std::unique_ptr<HostClock> steady_clock();
std::unique_ptr<HostClock> steady_clock(Nanoseconds epoch);

struct DriverOptions {
  Nanoseconds timeout = Nanoseconds{600} * 1000000000;
  NcclModel model;  // what the explanation of a standstill assumes
  // Where this process serves one rank; outlives the driver. A standstill is then the watchdog's, whatever the timeout.
  RankStatus* status = nullptr;
  // In which a Program with graphs has to complete before anything of it is captured.
  NcclModel graphs = certification_model();
};

class CudaDriver {
 public:
  // All outlive this.
  CudaDriver(CudaBackend& backend, HostClock& clock, DriverOptions options);

  // The Program of the steps to come. Waits until communicators are there: kTimeout when they are not in time. One with
  // graphs is simulated first: if it does not complete, or communicates wrongly, that is the error (kState, N18).
  Status set_program(const LinkedProgram& linked);
  // An error is a kernel's or a call's, or says that the run was given up; a standstill is an outcome. After either,
  // nothing more runs.
  Result<SimStep> run_step(int step, RunRecord& record);

 private:
  struct Hosts;
  Status wait_for_communicators();
  Result<bool> run_hosts(Hosts& hosts);
  void show(const Hosts& hosts) const;
  bool given_up() const { return options_.status != nullptr && options_.status->given_up(); }
  Status abort_and_drain();
  void add_crossed(const Hosts& hosts, std::vector<Finding>& findings) const;
  Result<Finding> explain(const Hosts& hosts) const;
  Status judge_graphs(const LinkedProgram& linked) const;

  CudaBackend* backend_;
  HostClock* clock_;
  DriverOptions options_;
  const LinkedProgram* linked_ = nullptr;
  std::array<std::vector<Finding>, 2> crossed_;  // by arm: messages whose ends carry different labels
  bool ended_ = false;
};

}  // namespace plumbline::cuda
