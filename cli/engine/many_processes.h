// A run of one process a rank, whatever carries its messages: which ranks this process starts, where their records
// lie, and what is said at the end. Each rank writes a record of its own beside OUT, in OUT.ranks/; the process that
// started rank 0 outlives it, puts them together, and says why a run was given up. Needs LibTorch's TCPStore.
#pragma once

#include <functional>
#include <string>

#include "backends/processes/store.h"
#include "cli/engine/run_session.h"
#include "engine/program/run_plan.h"

namespace plumbline::cli {

// A rank of this process's, as its own process sees it.
struct RankPlace {
  Rank rank = 0;
  int world = 1;
  int local_rank = 0;  // among the ranks of its machine
  processes::StoreAddress store;
};

// The whole life of a rank; returns its exit code.
using RankLife = std::function<int(const RankPlace& place)>;

// Starts the ranks of this machine (--nproc), or the one that this process was started for by a launcher or by
// --rank; returns the run's exit code, the same in the processes of all ranks. Called before any thread exists.
int run_in_processes(const ValidConfig& valid, const RunOptions& options, const RankLife& life);

// Files of the ranks, and the one of a rank's record.
std::string ranks_folder(const RunOptions& options);
std::string rank_record(const RunOptions& options, Rank rank);

// What the ranks run, step by step.
Result<RunPlan> plan_of(const RunConfig& config);

}  // namespace plumbline::cli
