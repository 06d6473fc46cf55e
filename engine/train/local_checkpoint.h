// Local checkpoints: each rank saves all that it holds below a directory of its own on its machine's disk, as a
// checkpoint of a group of one (localized(), sharded.h), and loads it without the others. Quick, and gone with the
// machine: what a run restarts from is the newest iteration that every rank has whole.
//
//   DIRECTORY/rank_00003/iter_0000105/    written and committed by rank 3 as any other checkpoint (storage/save.h)
//
// The one before goes when all ranks have the new one, so that whatever ends the run in between leaves an iteration
// that all have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/sharded.h"
#include "engine/config/run_config.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/read.h"

namespace plumbline {

inline constexpr const char* kLocalPart = "local";  // an object of each: whose it is

class LocalCheckpoints {
 public:
  LocalCheckpoints(FileLayer& files, const RunConfig& config);  // both outlive it

  struct Found {
    std::int64_t iteration = -1;            // -1: there is none that all ranks have
    std::vector<CheckpointReader> readers;  // verified, one a local rank
    std::vector<std::string> notices;       // of all ranks: what is not there or not whole
  };
  // All processes of a run together, each with its ranks. A whole one of another layout is an error (kState): its parts
  // fit nowhere else.
  Result<Found> find(ControlChannel& processes, const std::vector<Rank>& ranks,
                     const StorageProgress& progress) const;

  // All ranks together, each with what it holds.
  Result<Saved> save(ControlChannel& ranks, std::int64_t iteration, const ShardedStateDict& state,
                     const StorageProgress& progress) const;
  // Whatever this rank has of later iterations.
  Status forget_later(Rank rank, std::int64_t iteration) const;

 private:
  std::string directory_of(Rank rank) const;
  Status open_whole(Rank rank, const StorageProgress& progress, std::vector<CheckpointReader>& whole,
                    std::string& told) const;
  Status drop_others(Rank rank, std::int64_t iteration) const;

  FileLayer& files_;
  const RunConfig& config_;
};

}  // namespace plumbline
