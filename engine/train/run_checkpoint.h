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
// No key depends on the layout but rng.*: any pp, vp, dp and kind of optimizer loads what any other saved.
#pragma once

#include <functional>
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
#include "engine/train/rank_model.h"

namespace plumbline {

// Memberships in one group of all ranks of the run.
struct CheckpointGroup {
  std::vector<std::unique_ptr<ControlChannel>> ranks;  // one a local rank
  std::unique_ptr<ControlChannel> process;             // of all processes
};
// Makes a group that nobody else uses; called at most twice by each process (saves that go on beside training have a
// group of their own).
using CheckpointGroups = std::function<Result<CheckpointGroup>(int local_ranks)>;

// All ranks are in this process; they meet as threads of it.
CheckpointGroups in_this_process();
// One rank a process, over a channel that outlives the run and that nobody uses at the same time. There is one, so
// asynchronous saves are refused (kUnsupported).
CheckpointGroups one_rank_a_process(ControlChannel& channel);

struct RunCounters {
  std::int64_t iteration = 0;
  std::int64_t consumed_train_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  std::int64_t updates = 0, skipped = 0;  // steps
};

// What a run begins with.
struct Resume {
  bool found = false;
  std::string path;      // of the checkpoint
  RunCounters counters;  // zeros with finetune, or from a release
  std::vector<std::string> notices;
};

// A rank of this process.
struct RankState {
  Rank rank = 0;
  const RankModel* model = nullptr;
  RngTracker* random = nullptr;
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

  // Finds what config.checkpoint.load names and verifies every byte of it. Nothing there is no error unless
  // exit_on_missing: training starts at 0, and a notice says so. Refused (kState), besides damaged files:
  // another model, precision or optimizer rule - every difference is named - and what was not saved but would
  // be loaded.
  Result<Resume> open();
  // After an open() that found something: fills models, optimizers, schedulers and random states of all local
  // ranks. What a load had to say is added to `notices`.
  Status load(const std::vector<RankState>& ranks, std::vector<std::string>& notices);

  // One call a checkpoint, in all processes. The path, once it is committed: asynchronous saves return that of the one
  // before. An error means that the checkpoint of before still is the newest one.
  Result<std::optional<Saved>> save(const RunCounters& counters, const std::vector<RankState>& ranks);
  // Waits for the last asynchronous save.
  Result<std::optional<Saved>> finish();

 private:
  explicit RunCheckpoint(Parts parts);
  bool fresh() const;       // weights alone are loaded
  bool with_optim() const;  // ... and the optimizer too
  Status check(const Manifest& manifest);
  Result<RunCounters> counters_of(std::vector<std::string>& notices) const;
  Result<ShardedStateDict> state_of(const RunCounters& counters, const RankState& rank) const;
  Result<ShardedStateDict> wanted(const std::vector<RankState>& ranks) const;
  bool same_layout() const;

  Parts parts_;
  CheckpointGroup group_;
  std::vector<std::unique_ptr<AsyncSaver>> savers_;  // by local rank; empty: saves are waited for
  std::optional<FoundCheckpoint> found_;
  std::optional<CheckpointReader> reader_;
};

}  // namespace plumbline
