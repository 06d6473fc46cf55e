// The sequential reference: what training must compute, without ranks, messages or schedules. It defines
// DESIGN 5.6 and is what simulated training equals bit for bit:
//
//   1. All stages run in one process, the output of one a detached input of the next. The forwards of a
//      replica go first, then its backwards, the last stage first, each stage's microbatches in the
//      schedule's backward order of that stage - the order of B and W, by which weights' gradients are added.
//      With schedule.slices, slices stand for microbatches, and a slice's backward begins at the keys and values that
//      later ones read as well. Where several pipelines hold copies of a stage, each copy adds its own microbatches,
//      and the copies are added in rank order.
//   2. The last stage's backward starts from float(scale / (M * dp)). Leaf gradients, in the run's precision,
//      are added to fp32 sums in that order, starting from zero.
//   3. Replicas are added in rank order: ((g0 + g1) + g2) + ...
//   4. The two uses of a tied embedding are two leaves; both become first + last.
//   5. Gradients are multiplied by float(1 / scale); when one was not finite, the step is skipped and the
//      scale backs off.
//   6. Norm: the exact sum of squares of all parameters, the tied one once (base/exact_sum.h).
//   7. Clipping, update and the copy to the model's precision by the replicated optimizer over all stages
//      (Megatron's fp32 or fp16 optimizer, engine/optim): no shards, no speculation, no reductions. States narrower
//      than fp32 have no replicated form; they use the distributed optimizer with one shard.
//
// Used by tests; plain on purpose.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/schedule.h"
#include "engine/train/batches.h"
#include "engine/train/model_table.h"
#include "engine/train/rank_model.h"

namespace plumbline {

// Microbatches of each stage, one list for each copy of the stage, copies in rank order.
using BackwardOrder = std::vector<std::vector<std::vector<int>>>;

class SequentialReference {
 public:
  struct Step {
    double loss = 0.0;  // mean over microbatches, then replicas
    bool found_inf = false;
    float scale = 1.0f;
    double norm = -1.0;
    std::int64_t zeros = -1;
    double lr = 0.0;
  };

  // `config` and `batches` outlive it; steps have config.schedule.microbatches at first.
  static Result<SequentialReference> create(const RunConfig& config, const ModelFamily& family,
                                            const BatchSource& batches, BackwardOrder backward_order);

  // `overflow`: as if some gradient of the step had not been finite.
  Step step(std::int64_t consumed, bool overflow = false);

  // From the next step on. `backward_order` as above, of the schedule with this many microbatches.
  void set_microbatches(int microbatches, BackwardOrder backward_order) {
    microbatches_ = microbatches;
    order_ = std::move(backward_order);
  }
  std::int64_t samples_of_step() const;

  // Of all parameters, whole; gradients are the last step's: reduced, unscaled, not clipped.
  const RankModel& model() const { return *model_; }
  std::uint64_t params_digest() const { return digests().parameters; }
  std::uint64_t optimizer_digest() const { return digests().optimizer; }

 private:
  using Sums = std::vector<std::vector<float>>;  // by slice

  SequentialReference() = default;
  Sums replica_gradients(std::int64_t consumed, int replica, float factor, double& loss);
  void add_leaves(int stage, Sums& sums);
  void add_copy(int stage, Sums& sums, const Sums& copy) const;
  void add_tied_uses(Sums& sums) const;
  void update(Step& step, const Sums& gradients, bool overflow);
  ModelDigests digests() const;

  const RunConfig* config_ = nullptr;
  const BatchSource* batches_ = nullptr;
  BackwardOrder order_;
  std::vector<std::unique_ptr<Stage>> stages_;
  int microbatches_ = 1;
  int parameters_ = 0;
  std::unique_ptr<RankModel> model_;
};

// In the order of the schedule's B and W.
BackwardOrder backward_order_of(const Schedule& schedule);

}  // namespace plumbline
