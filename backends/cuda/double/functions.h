// Everything that a process elsewhere can have called in the process that holds the Machine.
#pragma once

#include <cstdint>
#include <string>

#include "backends/cuda/double/wire.h"

#define X(name, parameters) extern "C" int name parameters;
PLUMBLINE_CUDA_RUNTIME(X)
PLUMBLINE_NCCL(X)
PLUMBLINE_NCCL_NEWER(X)
#undef X
extern "C" int cuStreamWriteValue32_v2(plumbline::cuda::StreamHandle, plumbline::cuda::DeviceAddress,
                                       std::uint32_t, unsigned);
extern "C" int cuStreamWaitValue32_v2(plumbline::cuda::StreamHandle, plumbline::cuda::DeviceAddress,
                                      std::uint32_t, unsigned);

namespace plumbline::cuda {

// ncclCommShrink, whose list has its length beside it.
int shrink_of_ranks(CommHandle comm, RankList excluded, CommHandle* made, CommConfig* config, int flags);
int host_function_done(std::uint64_t node);
// control.h
int control_step();
int control_polls_step(int on);
long long control_now();
int control_next_takes(long long nanoseconds);
int control_end_process(int device);
int control_incomplete();
std::string control_verdict(int with_deadlock);
long long control_calls();
long long control_peak(int device);

}  // namespace plumbline::cuda
