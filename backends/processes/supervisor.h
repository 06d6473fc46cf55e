// Supervisor: starts the ranks of this machine as processes, holds the store, and sees to it that all of them end.
// It does not take part in the run, so that the store outlives rank 0, and what is left of a run that stalled is
// put together here.
//
// A rank dies with its supervisor (PR_SET_PDEATHSIG). When a rank ends badly, when the watchdog of one speaks, or
// when the supervisor is told to stop, the others get `grace` seconds for their last words and are then killed.
//
// Under a launcher every rank has a supervisor of its own, and launchers make different things of exit codes that
// differ: srun reports the highest, Hydra all of them or-ed together, Open MPI the first. So that none of them hides
// what happened, the supervisor of rank 0 concludes for all - it alone speaks - and all leave with its code, after it
// has finished: Open MPI kills whoever still runs a second after the first has left.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/processes/store.h"
#include "engine/base/result.h"
#include "engine/config/rank_grid.h"

namespace plumbline::processes {

struct SupervisorOptions {
  std::vector<Rank> ranks;  // of this process
  int world = 1;
  StoreAddress store;
  bool serves_store = true;  // at `store`'s port, 0 for any; else it joins it
  // A launcher started this process: without the launcher nobody hears of the run, and it is given up.
  bool by_launcher = false;
  double join_seconds = 60.0;
  double grace = 3.0;
};

struct RankEnd {
  Rank rank = 0;
  int code = 0;         // exit code
  int signal = 0;       // that ended it; 0: none
  bool killed = false;  // by the supervisor
};

// How the run ended, as the supervisor of rank 0 knows it.
struct RunEnd {
  std::vector<RankEnd> ended;             // ranks of this process, in the order in which they ended
  std::optional<RankEnd> culprit;         // the first rank of the run that ended badly by itself
  std::optional<std::string> stopped;     // why the run was ended early, by a watchdog or a signal
  std::map<Rank, std::string> positions;  // last words, of all ranks of the run that left some
};

// What a rank does, in a process of its own; returns its exit code. Standard streams are the supervisor's.
using RankBody = std::function<int(Rank rank, const StoreAddress& store)>;

// Says what is to be said of the run's end and returns the run's exit code. Called in the process of rank 0 alone,
// when no rank runs any more.
using Conclusion = std::function<int(const RunEnd& end)>;

// What this process leaves with. `alone`: the supervisor of rank 0 did not say anything, so that this is about the
// ranks of this process only, and why.
struct Departure {
  int code = 0;
  std::string alone;
};

// A rank sets this key of the store when it needs it no more.
std::string done_key(Rank rank);

// Called before any thread exists. The error is of the start alone: a port in use, a process that cannot be made.
Result<Departure> supervise(const SupervisorOptions& options, const RankBody& body,
                            const Conclusion& conclude);

}  // namespace plumbline::processes
