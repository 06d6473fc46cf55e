// What the two ways to run on CUDA share: all ranks in this process, and one process a rank.
#pragma once

#include <string>

#include "backends/cuda/tensors/step_driver.h"
#include "cli/engine/run_session.h"

namespace plumbline::cli {

// Whether stages compute on the device, by --compute; sets what belongs to that in `run` and `session`.
Result<bool> choose_compute(const ValidConfig& valid, const RunOptions& options, cuda::CudaRunOptions& run,
                            RankSession& session);

// Starts the ranks of this machine, or the one that this process was started for. Nothing of CUDA may have been called
// in this process: its state does not survive a fork.
int run_cuda_in_processes(const ValidConfig& valid, const std::string& line, const RunOptions& options);

}  // namespace plumbline::cli
