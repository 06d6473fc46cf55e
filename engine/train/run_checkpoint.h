// RunCheckpoint: what a training run saves and what it goes on from (docs/checkpoints.md). Knows nothing of where the
// ranks are: each local rank has a channel to all others, and the process has one for what it does once. A simulated
// run has all ranks in one process, a process group one rank in each.
//
// In a checkpoint of plumbline's own format:
//   model.<parameter>           weights in the model's precision; each rank saves what its optimizer updates
//   optimizer.*                 MegatronOptimizer::sharded_state_dict(): main copies, moments, settings, loss scaler
//   opt_param_scheduler         OptimizerParamScheduler::state_dict()
//   rng.<rank>                  {torch_rng_state, rng_tracker_states, layout}
//   run                         counters, and the options of the run as text under "args"
//
// No key depends on the layout but rng.*: any pp, vp, dp and kind of optimizer loads what any other saved. Local
// checkpoints (local_checkpoint.h) and Megatron's files (legacy_checkpoint.h) are loaded by the layout that saved them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/async_save.h"
#include "engine/checkpoint/rng_tracker.h"
#include "engine/config/run_config.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/read.h"
#include "engine/train/checkpoint_groups.h"
#include "engine/train/legacy_checkpoint.h"
#include "engine/train/local_checkpoint.h"
#include "engine/train/run_state.h"

namespace plumbline {

// What a run begins with.
struct Resume {
  bool found = false;
  std::string path;                                     // of the checkpoint
  NonPersistent non_persistent = NonPersistent::kNone;  // kNone: it is a persistent one
  RunCounters counters;                                 // zeros with finetune, or from a release
  std::vector<std::string> notices;
};

// As Megatron seeds a rank: states "data-parallel-rng", the same on all ranks of a pipeline stage, and
// "model-parallel-rng".
RngTracker random_states_of(const RunConfig& config, Rank rank);

class RunCheckpoint {
 public:
  struct Parts {
    const RunConfig* config = nullptr;  // outlives it
    FileLayer* files = nullptr;         // likewise
    CheckpointGroups groups;
    int local_ranks = 1;
    std::string data_digest;   // of the training text; empty: none
    StorageProgress progress;  // of loads, and of the first local rank's part of saves
  };
  static Result<std::unique_ptr<RunCheckpoint>> create(Parts parts);

  // Finds what config.checkpoint.load names - the newest of persistent and non-persistent ones, of equal ones the
  // latter - and verifies every byte of it. Nothing there is no error unless exit_on_missing: training starts at 0,
  // and a notice says so. Refused (kState), besides damaged files: another model, precision or optimizer rule - every
  // difference is named - and what was not saved but would be loaded.
  Result<Resume> open();
  // After an open() that found something: fills models, optimizers, schedulers and random states of all local
  // ranks. What a load had to say is added to `notices`.
  Status load(const std::vector<RankState>& ranks, std::vector<std::string>& notices);

  // One call a checkpoint, in all processes: a persistent one, or one of config.checkpoint.non_persistent's type. The
  // path, once it is committed: asynchronous saves return that of the one before; local ones are always waited for. An
  // error means that the checkpoint of before still is the newest one.
  enum class Kind : std::uint8_t { kPersistent, kNonPersistent };
  Result<std::optional<Saved>> save(const RunCounters& counters, const std::vector<RankState>& ranks,
                                    Kind kind = Kind::kPersistent);
  // Waits for the last asynchronous save.
  Result<std::optional<Saved>> finish();

 private:
  explicit RunCheckpoint(Parts parts);
  bool fresh() const;       // weights alone are loaded
  bool with_optim() const;  // ... and the optimizer too
  Status check(const Manifest& manifest);
  Status find(std::vector<std::string>& notices);
  Status find_non_persistent(std::vector<std::string>& notices);
  Status open_found();
  Result<RunCounters> open_legacy_files(std::vector<std::string>& notices);
  Result<RunCounters> open_own(std::vector<std::string>& notices);
  const CheckpointReader& reader() const { return readers_.front(); }
  Result<RunCounters> counters_of(std::vector<std::string>& notices) const;
  Result<ShardedStateDict> state_of(const RunCounters& counters, const RankState& rank, bool local) const;
  Result<ShardedStateDict> wanted(const CheckpointReader& reader, const std::vector<RankState>& ranks) const;
  bool same_layout(const CheckpointReader& reader, Rank rank) const;
  Status load_from(const CheckpointReader& reader, ControlChannel& channel,
                   const std::vector<RankState>& ranks, std::vector<std::string>& notices);
  Status finish_rank(const RankState& rank, const std::vector<ShardedObject>& objects, bool random,
                     std::vector<std::string>& notices) const;
  Status forget_later(const std::vector<RankState>& ranks);
  Result<Saved> save_rank(std::size_t i, const RunCounters& counters, const RankState& rank, Kind kind,
                          ShardedStateDict& state);
  std::string directory_of(Kind kind, const std::string& beside) const;
  SaveOptions how_to_save(Kind kind) const;

  Parts parts_;
  CheckpointGroup group_;
  std::vector<std::unique_ptr<AsyncSaver>> savers_;  // by local rank; empty: saves are waited for
  LocalCheckpoints locals_;
  std::optional<FoundCheckpoint> found_;
  NonPersistent found_kind_ = NonPersistent::kNone;
  std::vector<CheckpointReader>
      readers_;                      // of found_: one, or of a local one one a local rank; none after load()
  std::vector<LegacyState> legacy_;  // by local rank, of a checkpoint in Megatron's files; none after load()
  std::int64_t begin_ = 0;           // iteration that the run goes on from
  bool forgotten_ = false;           // what it was set back from
};

}  // namespace plumbline
