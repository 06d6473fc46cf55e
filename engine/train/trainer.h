// Trainer: from a configuration to a trained model and a RunRecord. It makes the stages and workers of all
// ranks, lowers the Programs of the run (program/run_plan.h), hands each step's to the driver it was given, and
// keeps the books: step rows, evaluation, digests. After every update it compares the replicas: parameters, main
// parameters, moments, update counts and scalers of all ranks that share them must be equal, bit for bit. Where
// parameters are gathered in the next step, they are compared after evaluations and at the end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/toy_check.h"
#include "engine/runtime/run_record.h"
#include "engine/storage/control_channel.h"
#include "engine/train/baselines.h"
#include "engine/train/compute_place.h"
#include "engine/train/driver.h"
#include "engine/train/run_checkpoint.h"
#include "engine/train/text.h"
#include "engine/train/worker.h"

namespace plumbline {

// How a run ended.
struct TrainOutcome {
  bool completed = true;
  std::vector<Finding> findings;  // of the step that did not complete, or whose labels were wrong
  std::vector<ToyFinding> toy;    // toy model: contributions that were not what they must be
  // docs/exit-codes.md: 0, 3 deadlock, 4 wrong labels or contributions, 1 when every step was skipped, so that
  // nothing was trained.
  int exit_code = 0;
  int iteration = 0;                 // the last one, counted from 1 over all parts of a resumed run
  bool stopped = false;              // there, by train.exit_interval
  int updates = 0, skipped = 0;      // training steps that changed the model, and that an overflow left out
  std::vector<std::string> notices;  // about skipped steps and the loss scale; also of a run that ended well
  double validation_loss = 0.0;      // of the last evaluation, nats a byte; NaN: none
};

class Trainer {
 public:
  struct Options {
    DriverFactory driver = simulated();
    // Null: all ranks are in this process. Else this process is the channel's rank alone, whose part the driver
    // runs, and the ranks tell each other what the books need after every step. Outlives the trainer.
    ControlChannel* channel = nullptr;
    // A second one, that asynchronous saves alone use, from a thread of their own; likewise. Null: they are refused.
    ControlChannel* save_channel = nullptr;
    // Where the stages of a rank compute; none, or empty: in host memory.
    std::function<std::optional<ComputePlace>(Rank)> place;
    // Called after every step with the record so far; the last row of record.steps is the step's.
    std::function<Status(const RunRecord&)> on_step;
    // What the driver runs in place of a rank's worker (which stays alive); for fault injection in tests.
    std::function<std::unique_ptr<Worker>(StageWorker&)> wrap;
    // Of checkpoints: where they are (null: the machine's own file system), how the ranks meet (empty: over `channel`,
    // or as threads of this process), what is told a committed one, and how far a load or save has come.
    FileLayer* files = nullptr;
    CheckpointGroups groups;
    std::function<void(const Saved&)> on_saved;
    StorageProgress progress;
  };

  // `config` has passed validate() for a run. With config.checkpoint.load the run goes on from what is found there;
  // a checkpoint that cannot be used is an error (run_checkpoint.h).
  static Result<std::unique_ptr<Trainer>> create(RunConfig config, Options options);
  ~Trainer();

  // Trains and evaluates to the end, to config.train.exit_interval, or to the first step that does not
  // complete; with a forward-only schedule it evaluates, once. Saves after the evaluations, every
  // checkpoint.interval iterations and where it ends well; between these every
  // checkpoint.non_persistent_interval iterations. Errors are a worker's, on_step's or a save's.
  Result<TrainOutcome> run();

  // One training step; for tests.
  Result<TrainOutcome> train_step();

  const RunConfig& config() const;
  const RunRecord& record() const;
  RunRecord& record();
  const Program& program() const;                    // of the steps with config.schedule.microbatches
  const std::vector<StageWorker*>& workers() const;  // of the ranks in this process, by rank
  // The schedule is forward-only: the run is one evaluation, of what was loaded or of the initial weights.
  bool evaluates_only() const;
  const Text* text() const;                // null for the toy model
  const Resume& resume() const;            // what the run went on from
  RngTracker& random(std::size_t worker);  // random states of a rank, saved and loaded with it

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline
