// The server of the doubles: one process holds the Machine - one simulated world for all devices -, and the processes
// of a run call it over a Unix socket (wire.h, remote.h). One thread answers one call after the other; time moves
// when somebody polls.
//
// A process that goes away leaves as Machine::leave says: ranks that had communicators left are processes that ended.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/double/arena.h"
#include "backends/cuda/double/wire.h"
#include "engine/base/result.h"

namespace plumbline::cuda {

// Serves the Machine of this process at `socket` until `command`, started with PLUMBLINE_DOUBLE_SERVER and names of
// this library for those of CUDA and NCCL that have none, has ended: its exit code, or 128 and the signal. Without a
// command, until processes have come and all have gone, or a signal says so: 0.
Result<int> serve(const std::string& socket, const std::vector<std::string>& command, const Arena& arena);

// Calls the function that the frame names, as the Machine's caller; false: the frame is none of ours.
bool dispatch(Function function, Reader& in, Writer& out);

}  // namespace plumbline::cuda
