// From where the hosts of a real run stand to what they wait for. A watchdog reports, for each rank, the item its
// host has come to; the simulator is led to the same place - every host to its position and no further, devices
// as far as they can get without them - and its explanation of a deadlock (deadlock.h) is that of the real run.
//
// Devices are taken to have done all they can: where a rank can still go on by the Program, it is not deadlocked
// but late - it computes, it is stopped, or its messages do not arrive - and is named as such.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/program/link.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline {

struct HostPosition {
  enum class State : std::uint8_t {
    kBlocked,   // waits at `item`
    kFinished,  // is at the end of the step
    kUnknown,   // has not answered; stands somewhere, taken to be at the beginning
  };
  State state = State::kUnknown;
  std::uint32_t item = 0;                    // the item that the host waits at; of a group, its first
  std::optional<std::uint32_t> kernel = {};  // the item of a kernel that is being computed
};

struct Stall {
  std::optional<Finding> deadlock;  // with its wait-for graph; absent: nothing waits in vain
  std::vector<OperationRef> late;   // what could go on and does not, by rank: culprits, not victims
};

// `positions`: one a thread, all in the same step. `read_value`: what a Read of a variable has given.
Result<Stall> explain_positions(const LinkedProgram& linked, const NcclModel& model,
                                const std::vector<HostPosition>& positions, double read_value);

}  // namespace plumbline
