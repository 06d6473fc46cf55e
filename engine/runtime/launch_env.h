// Which rank this process is, by flags or by what a launcher left in the environment. Resolution order: flags,
// torchrun, Open MPI, PMI (MPICH, Intel MPI), SLURM. An environment that is half set is refused with the names of
// its variables: the worst error on a cluster is 64 copies of rank 0.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/loader.h"
#include "engine/config/rank_grid.h"

namespace plumbline {

enum class Launcher : std::uint8_t { kFlags, kTorchrun, kOpenMpi, kPmi, kSlurm };
std::string_view launcher_name(Launcher launcher);

struct LaunchPlace {
  Launcher by = Launcher::kFlags;
  Rank rank = 0;
  int world = 1;
  int local_rank = 0;
  std::string host;              // where the store is
  int port = 29500;              // of the store
  bool store_is_served = false;  // by torchrun's agent; else the process of rank 0 does
  std::string run;  // prefix of the run's keys in a store that others use too; empty: none is needed
  int copies =
      1;  // how many of this process the launcher has started: of SLURM those of the step, not of the job
};

struct LaunchFlags {
  std::optional<int> rank, world, local_rank, port;
  std::optional<std::string> host;
};

// The launchers' variables of this process.
Environment launcher_environment();

// Absent: started by itself, without any launcher. Empty variables count as unset.
Result<std::optional<LaunchPlace>> launch_place(const LaunchFlags& flags, const Environment& environment);

// First host of a SLURM node list: "gpu[003-005,9],x1" is gpu003.
std::string first_host(std::string_view node_list);

// Launchers that a command can be printed for: "slurm", "torchrun", "mpirun" (Open MPI), "mpiexec" (Hydra: MPICH,
// Intel MPI).
struct LaunchShape {
  int ranks = 1;
  int per_node = 1;
  bool as_root = false;  // Open MPI wants to be told
  bool gpus = false;     // a GPU a rank, which SLURM gives only when asked
};

// The command that starts `arguments` (of `plumbline`).
Result<std::string> launch_command(std::string_view launcher, const LaunchShape& shape,
                                   const std::vector<std::string>& arguments);

}  // namespace plumbline
