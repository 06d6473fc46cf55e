// The CUDA driver as a StepDriver: what a trainer is handed to run its ranks on CUDA streams, all ranks of the run in
// this process or, through NCCL alone, one of them. Stages that compute on the host (LibTorch on the CPU, the toy
// model) are called from their streams; stages on the device come with the kernels that make_kernels gives.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backends/cuda/driver.h"
#include "backends/cuda/library.h"
#include "backends/cuda/nccl_transport.h"
#include "backends/cuda/tensors/device_kernels.h"
#include "engine/train/driver.h"

namespace plumbline::cuda {

enum class Level : std::uint8_t {
  kNccl,    // rank r on device r, NCCL between them
  kShared,  // NCCL 2.30 or newer with NCCL_MULTI_RANK_GPU_ENABLE=1: rank r on device r mod their number (N71)
  kLoopback,  // all ranks on one device, stream memory operations between them
  kSelfSend,  // loopback whose copies NCCL makes, by a communicator of one rank a line of messages
};

// What a record calls it: "cuda-nccl", "cuda-nccl-shared", "cuda-loopback", "cuda-self-send".
std::string backend_name(Level level);

// All ranks on one device, in loopback or by self-send.
constexpr bool on_one_device(Level level) { return level == Level::kLoopback || level == Level::kSelfSend; }

// This process serves one rank, and others serve the rest (backends/processes).
struct OneRank {
  Rank rank = 0;
  int device = 0;
  Nanoseconds epoch = 0;      // steady clock at the run's start: times are counted from it
  IdExchange* ids = nullptr;  // both outlive the driver
  RankStatus* status = nullptr;
  // Called before a step or the making of communicators returns an error that the end of another rank may have caused.
  std::function<void()> before_error;
};

struct CudaRunOptions {
  Level level = Level::kNccl;
  int device = 0;              // kLoopback, kSelfSend
  int devices = 1;             // kShared
  std::optional<OneRank> one;  // kNccl, kShared; absent: all ranks are here
  LibraryPaths libraries;
  Nanoseconds timeout =
      Nanoseconds{600} * 1000000000;  // of one rank alone: that streams run dry after an abort
  // The kernels of a rank; without it HostKernels around the rank's worker.
  std::function<std::unique_ptr<StageKernels>(const Libraries&, Rank, Worker&)> make_kernels;
  // Without it the steady clock, of one rank from its epoch.
  std::function<std::unique_ptr<HostClock>(const Libraries&)> make_clock;
};

struct Placement {
  Level level = Level::kNccl;
  int devices = 0;  // of this machine
};
// The level for so many ranks: NCCL where there is a device for each, else loopback. NCCL wished for fewer devices is
// shared by ranks if it can do that and has been told to, else an error (kUnsupported), as is a machine without a
// device, or without CUDA's runtime (kMissing).
Result<Placement> level_for(int ranks, std::optional<Level> wished, const LibraryPaths& libraries = {});

// The device of a rank that has a process of its own, and the level. `here`: ranks of this machine; `local`: which of
// them. `bound`: each process may see a device of its own alone, as after `srun --gpus-per-task=1`; that is number 0.
// Errors as of level_for, and kUsage for a `local` that has no device.
struct RankDevice {
  Level level = Level::kNccl;
  int device = 0;
};
Result<RankDevice> device_of_rank(int local, int here, bool bound, const LibraryPaths& libraries = {});

// Makes LibTorch's side of a device; null: this build's LibTorch has no CUDA.
using TensorDeviceMaker = std::function<std::unique_ptr<TensorDevice>(int ordinal)>;
// Stages compute on the ranks' devices: sets options.make_kernels, and returns where each rank computes, for
// Trainer::Options::place. Without a maker that is an error (kUnsupported), except on the doubles, where the CPU stands
// for the device.
Result<std::function<std::optional<ComputePlace>(Rank)>> compute_on_device(CudaRunOptions& options,
                                                                           const TensorDeviceMaker& maker);

// Loads the libraries at once: the error says what is missing.
Result<DriverFactory> driver(CudaRunOptions options);

}  // namespace plumbline::cuda
