// Supervisor: starts the ranks of this machine as processes, holds the store, and sees to it that all of them end.
// It does not take part in the run, so that the store outlives rank 0, and what is left of a run that stalled is
// put together here.
//
// A rank dies with its supervisor (PR_SET_PDEATHSIG). When a rank ends badly, when the watchdog of one speaks, or
// when the supervisor is told to stop, the others get `grace` seconds for their last words and are then killed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/gloo/store.h"
#include "engine/base/result.h"

namespace plumbline::gloo {

struct SupervisorOptions {
  std::vector<Rank> ranks;  // of this process
  int world = 1;
  StoreAddress store;
  bool serves_store = true;  // at `store`'s port, 0 for any; else it joins it
  double join_seconds = 60.0;
  double grace = 3.0;
};

struct RankEnd {
  Rank rank = 0;
  int code = 0;         // exit code
  int signal = 0;       // that ended it; 0: none
  bool killed = false;  // by the supervisor
};

struct RunEnd {
  std::vector<RankEnd> ended;             // in the order in which they ended
  std::optional<std::string> stopped;     // why the run was ended early, by a watchdog or a signal
  std::map<Rank, std::string> positions;  // last words, of all ranks of the run that left some
  // The first rank that ended badly by itself; null: none did.
  const RankEnd* culprit() const;
};

// What a rank does, in a process of its own; returns its exit code. Standard streams are the supervisor's.
using RankBody = std::function<int(Rank rank, const StoreAddress& store)>;

// A rank sets this key of the store when it needs it no more.
std::string done_key(Rank rank);

// Called before any thread exists. The error is of the start alone: a port in use, a process that cannot be made.
Result<RunEnd> supervise(const SupervisorOptions& options, const RankBody& body);

}  // namespace plumbline::gloo
