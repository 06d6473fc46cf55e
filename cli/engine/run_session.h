// One run of `plumbline run`, as a process sees it: all ranks simulated here, or one of them for real.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/common/options_binding.h"
#include "engine/train/trainer.h"

namespace plumbline::cli {

struct RunOptions {
  std::string out = "run.plmb";
  int log_interval = 0;
  bool quiet = false;
  // Of backends with one process a rank.
  std::string backend = "sim";
  int nproc = 0;
  std::optional<int> rank, world, local_rank, port;
  std::optional<std::string> host;
  double timeout = 60.0;       // without progress
  double join_timeout = 60.0;  // until all ranks are there
  // Of the CUDA backend: auto, nccl, loopback or self-send, and the device of the last two.
  std::string cuda_level = "auto";
  int device = 0;
  std::string compute = "auto";       // cuda: auto, host or device
  std::string arithmetic = "engine";  // or libtorch; of stages on the host
};

// What differs where another than the simulator executes.
struct RankSession {
  DriverFactory driver;
  ControlChannel* channel = nullptr;       // this process is one rank of many; null: all ranks are in it
  ControlChannel* save_channel = nullptr;  // of asynchronous saves
  bool speaks = true;                      // the table and the results
  // For the record: cores that this machine's ranks share, and how many they are; 0: not known.
  int cores = 0, ranks_a_machine = 0;
  std::function<std::optional<ComputePlace>(Rank)> place;  // of its stages; empty: the host
};

// Trains and writes the record to `options.out`. `rank` null: the simulator executes.
int run_session(const ValidConfig& valid, const std::string& line, const RunOptions& options,
                const RankSession* rank = nullptr);

// The same with a process a rank over Gloo: starts those of this machine, or the one this process was started for
// by a launcher, and puts their records together.
int run_over_gloo(const ValidConfig& valid, const std::string& line, const RunOptions& options);

// The same on CUDA streams: all ranks in this process, through NCCL with a device a rank or several on one device; or,
// by --nproc, --rank or a launcher, a process a rank through NCCL.
int run_on_cuda(const ValidConfig& valid, const std::string& line, const RunOptions& options);

// The run on the backend that the options name.
int run_on_backend(const ValidConfig& valid, const std::string& line, const RunOptions& options);

// --backend and what belongs to it. `options` outlives the parse.
void add_backend_options(CLI::App& app, RunOptions& options);

// A deadlock or another finding, to stderr.
void hint_finding(const Finding& finding);

}  // namespace plumbline::cli
