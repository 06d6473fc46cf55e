// The CUDA driver as a StepDriver: what a trainer is handed to run its ranks on CUDA streams, all ranks of the run in
// this process. Stages that compute on the host (LibTorch on the CPU, the toy model) are called from their streams;
// stages on the device come with the kernels that make_kernels gives.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/cuda/driver.h"
#include "backends/cuda/library.h"
#include "engine/train/driver.h"

namespace plumbline::cuda {

enum class Level : std::uint8_t {
  kNccl,      // rank r on device r, NCCL between them
  kLoopback,  // all ranks on one device, stream memory operations between them
};

struct CudaRunOptions {
  Level level = Level::kNccl;
  int device = 0;  // kLoopback
  LibraryPaths libraries;
  Nanoseconds timeout = Nanoseconds{600} * 1000000000;
  // The kernels of a rank; without it HostKernels around the rank's worker.
  std::function<std::unique_ptr<StageKernels>(const Libraries&, Rank, Worker&)> make_kernels;
  // Without it the steady clock.
  std::function<std::unique_ptr<HostClock>(const Libraries&)> make_clock;
};

// Loads the libraries at once: the error says what is missing.
Result<DriverFactory> driver(CudaRunOptions options);

}  // namespace plumbline::cuda
