// The worker of one rank: runs its stages and its part of the optimizer when a backend says so
// (runtime/worker.h).
//
// Gradients. The last stage's backward starts from scale / (M * dp): the loss of a microbatch is divided by
// all microbatches of the step, over all replicas, once, and multiplied by the loss scale; the data-parallel
// sum then is the mean. Leaf gradients come in the run's precision and are added up over the microbatches in
// fp32, in the order of the backwards.
//
// Memory. A forward's input is a view of its slot, which lives until the backward; its output is copied into
// its slot and then dropped while the graph is kept (Megatron's deallocation), so the slot is the only copy.
// A stash slot is a token: what it stands for is the graph kept here under (stage, microbatch).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/stage.h"
#include "engine/optim/rank_optimizer.h"
#include "engine/runtime/worker.h"
#include "engine/train/batches.h"

namespace plumbline {

// What a step is, told to every worker before it begins.
struct StepInput {
  bool evaluation = false;
  int iteration = 1;          // optimizer iteration, from 1
  std::int64_t consumed = 0;  // samples before this step
  int evaluation_step = 0;    // number of an evaluation's step
};

// What a step was, on one rank.
struct StepResult {
  std::vector<double> losses;  // by microbatch; empty on ranks without the last stage
  bool updated = false;
  bool skipped = false;
  double norm = -1.0;
  double lr = 0.0;
  float scale = 1.0f;  // at the step's begin
};

class StageWorker : public Worker {
 public:
  struct Parts {
    const RunConfig* config = nullptr;     // outlives the worker
    const BatchSource* batches = nullptr;  // outlives the worker
    Rank rank = 0;
    std::vector<std::unique_ptr<Stage>> stages;  // one a stage of the model, null where another rank holds it
    std::vector<ParameterSlice> slices;          // ModelTable::slices of the stages held
  };
  static Result<std::unique_ptr<StageWorker>> create(Parts parts);
  ~StageWorker() override;

  void begin_step(const StepInput& input);
  Status launch(const KernelCall& call, SlotStore& slots) override;
  const StepResult& result() const { return result_; }

  Rank rank() const { return parts_.rank; }
  const RankOptimizer& optimizer() const { return optimizer_; }
  // Name and bytes of one parameter in the model's precision.
  std::uint64_t parameter_digest(const ParameterSlice& slice) const;

  // Called with the gradients that the update will use: reduced, unscaled, not clipped. For proofs and tests.
  using GradientObserver = std::function<void(const StageWorker&, std::span<const float>)>;
  void observe_gradients(GradientObserver observer) { observer_ = std::move(observer); }

 private:
  struct Live;  // the graph of a forward whose backward is to come
  struct Call;  // a launch and its slots

  StageWorker(Parts parts, RankOptimizer optimizer);
  Status run(const Call& call);
  Status forward(const Call& call);
  Status backward(const Call& call);
  Status tail(const Call& call);
  Status unscale(const Call& call, std::span<float> gradients);
  Status merge_tied(const Call& call, std::span<float> gradients) const;
  void step(std::span<const float> gradients, std::span<const double> sums);
  void collect_leaf_gradients(int stage);
  const Batch& batch_of(int microbatch);
  const ParameterSlice* tied_slice(bool counted) const;
  at::Tensor& tensor_of(const ParameterSlice& slice) const;

  Parts parts_;
  RankOptimizer optimizer_;
  std::vector<float> sums_;  // gradients added up over the microbatches
  std::map<std::pair<int, int>, Live> live_;
  std::map<int, Batch> batches_;
  StepInput input_;
  StepResult result_;
  GradientObserver observer_;
};

}  // namespace plumbline
