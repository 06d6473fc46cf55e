// How the life of a rank begins, in a run of one process a rank, whatever carries its messages. Needs LibTorch's
// TCPStore.
#pragma once

#include <memory>

#include "backends/processes/store.h"
#include "cli/engine/many_processes.h"
#include "cli/engine/run_session.h"
#include "engine/base/units.h"
#include "engine/storage/control_channel.h"

namespace plumbline::cli {

struct Meeting {
  std::unique_ptr<processes::Store> store;
  Nanoseconds epoch = 0;  // steady clock at the run's start, as rank 0 has announced it
};

// Joins the store and finds all ranks about to run the same. What goes wrong is reported here, by rank 0 alone where
// all ranks find the same; the unexpected value is the exit code.
tl::expected<Meeting, int> meet(const ValidConfig& valid, const RunOptions& options, const RankPlace& place);

// An error that all ranks have: rank 0 says it. Returns the exit code.
int report_for_all(const Error& error, Rank rank);

// How many ranks run on this machine.
Result<int> ranks_here(ControlChannel& channel);

}  // namespace plumbline::cli
