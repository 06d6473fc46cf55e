// The worker of one rank: runs its stages and its part of the optimizer when a backend says so
// (runtime/worker.h).
//
// Gradients. The last stage's backward starts from scale / (M * dp): the loss of a microbatch is divided by
// all microbatches of the step, over all replicas, once, and multiplied by the loss scale; the data-parallel
// sum then is the mean. Leaf gradients come in the run's precision and are added up over the microbatches in
// fp32, in the order of the backwards, in the stage's gradient buffer: the slot main_grads.S, which the
// reductions work on. With the distributed optimizer the model's parameters lie in the slots params.S.
//
// A backward in two parts: I runs the whole backward, but puts off what only the weights need (model/deferred.h); W
// does that and adds it up. Both together give the bits of a B in W's place.
//
// Memory. A forward's input is a view of its slot, which lives until the backward; its output is copied into
// its slot and then dropped while the graph is kept (Megatron's deallocation), so the slot is the only copy.
// A stash slot is a token: what it stands for is the graph kept here under (stage, microbatch).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/slices.h"
#include "engine/model/stage.h"
#include "engine/runtime/worker.h"
#include "engine/train/batches.h"
#include "engine/train/compute_place.h"
#include "engine/train/rank_model.h"
#include "engine/train/step_snapshot.h"

namespace plumbline {

// What a step is, told to every worker before it begins.
struct StepInput {
  bool evaluation = false;
  int iteration = 1;          // optimizer iteration, from 1
  std::int64_t consumed = 0;  // samples before this step
  std::int64_t samples = 0;   // of this step, over all replicas
  int evaluation_step = 0;    // number of an evaluation's step
};

// What a step was, on one rank.
struct StepResult {
  std::vector<double> losses;  // by microbatch; empty on ranks without the last stage
  bool updated = false;
  bool skipped = false;
  bool rolled_back = false;  // post-validation: the speculative step was taken back
  double norm = -1.0;
  std::int64_t zeros = -1;  // of the gradient; -1: not counted
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
    std::vector<GroupKey> known_keys;            // parameter groups of the whole model
    std::optional<ComputePlace> place;           // of the stages; none: in host memory
  };
  static Result<std::unique_ptr<StageWorker>> create(Parts parts);
  ~StageWorker() override;

  void begin_step(const StepInput& input);
  // The step is through, also on the device: result() is whole.
  void end_step();

  // Stages with a place of their own: kernels that compute there. Their launch() enqueues on the device's current
  // stream and reads nothing of what the device writes; all others are for the host, in their turn on the stream.
  static bool on_device(KernelKind kind);
  bool has_place() const { return parts_.place.has_value(); }
  // Once through each stage, forwards and backwards on a batch that is thrown away, so that nothing is loaded, chosen
  // or allocated for the first time while streams wait for each other. Leaves no trace.
  Status warm_up(const Program& program);
  Status bind(const SlotClass& slot, const SlotMemory& memory) override;
  Status launch(const KernelCall& call, SlotStore& slots) override;
  const StepResult& result() const { return result_; }  // once the step is through

  Rank rank() const { return parts_.rank; }
  const RankModel& model() const { return *model_; }

  // Called when gradients are what the update will use: reduced, unscaled, not clipped. For proofs and tests.
  using GradientObserver = std::function<void(const StageWorker&)>;
  void observe_gradients(GradientObserver observer) { observer_ = std::move(observer); }

 private:
  struct Live;  // the graph of a forward whose backward is to come
  struct Call;  // a launch and its slots

  explicit StageWorker(Parts parts);
  Status run(const Call& call);
  Status forward(const Call& call);
  Status backward(const Call& call);
  Status input_grad(const Call& call);
  Status weight_grad(const Call& call);
  Result<Live*> find_live(const Call& call);
  Status propagate(const Call& call, Live& live);
  void write_shape(const Call& call, int stage, const at::Tensor& tensor) const;
  at::Tensor view(const SlotMemory& memory, const Batch& batch) const;
  Status copy_out(const at::Tensor& tensor, const SlotMemory& memory, const std::string& what) const;
  Status keep_loss(const at::Tensor& loss, int microbatch, int microbatches);
  Status move_batch(Batch& batch, int microbatch);
  Status tail(const Call& call);
  Status collect_tied(const Call& call) const;
  Status merge_tied(const Call& call) const;
  Status unscale(const Call& call);
  Status norm(const Call& call);
  double agreed_norm(const Call& call);
  Status step(const Call& call);
  Status speculate(const Call& call);
  Status validate_step(const Call& call);
  void skip();
  void updated(double norm);
  void inject_overflow() const;
  Result<const Batch*> batch_of(int microbatch);
  at::Device device() const { return parts_.place ? parts_.place->device : at::Device(at::kCPU); }

  Parts parts_;
  std::unique_ptr<RankModel> model_;
  std::map<std::pair<int, int>, Live> live_;
  SlicedPasses passes_;
  std::map<int, Batch> batches_;
  StepInput input_;
  StepResult result_;
  std::optional<StepSnapshot> snapshot_;  // of the speculative step in this step, if there was one
  GradientObserver observer_;
  // With a place: where the device leaves losses and finds tokens, in shared memory; by microbatch.
  at::Tensor losses_;
  std::map<int, std::pair<at::Tensor, at::Tensor>> inputs_;
};

}  // namespace plumbline
