// Why a run stands still that happened elsewhere: a watchdog knows where each host stood, and this says what waits
// for what, by the simulator's own rules. The hosts are brought to where they stood, each on its own, whatever can
// happen then happens, and the wait-for graph is that of the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/program/link.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline {

// Where the host of a thread stood.
struct HostPosition {
  bool finished = false;   // at the end of its step
  std::uint32_t item = 0;  // else: the item it stood at, of a group its first
  int arm = -1;            // that it had taken: 1 yes, 0 no, -1 none yet
};

// One position a thread of the Program. Of a run that could have gone on by these rules, the finding names the
// hosts that stood although nothing held them (cause "host"): the run was slow there, or a process was gone.
Result<Finding> stuck_finding(const LinkedProgram& linked, const NcclModel& model,
                              const std::vector<HostPosition>& positions);

}  // namespace plumbline
