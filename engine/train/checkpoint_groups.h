// How the ranks of a run meet when they save or load: all of them as threads of one process, or one a process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/control_channel.h"

namespace plumbline {

// Memberships in one group of all ranks of the run.
struct CheckpointGroup {
  std::vector<std::unique_ptr<ControlChannel>> ranks;  // one a local rank
  std::unique_ptr<ControlChannel> process;             // of all processes
};
// Makes a group that nobody else uses; called at most twice by each process (saves that go on beside training have a
// group of their own, on threads of their own).
using CheckpointGroups = std::function<Result<CheckpointGroup>(int local_ranks)>;

// All ranks are in this process; they meet as threads of it.
CheckpointGroups in_this_process();
// One rank a process, over a channel that outlives the run and that nobody uses at the same time, and one for saves
// beside training, which nobody else uses at all. Null: asynchronous saves are refused (kUnsupported).
CheckpointGroups one_rank_a_process(ControlChannel& channel, ControlChannel* beside = nullptr);

// work(i) for every local rank, each on a thread of its own; the first rank's error, of which all have the same.
Status on_all(std::size_t ranks, const std::function<Status(std::size_t)>& work);

}  // namespace plumbline
