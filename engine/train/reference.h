// The sequential reference: what training must compute, without ranks, messages or schedules. It defines
// DESIGN 5.6 and is what simulated training equals bit for bit:
//
//   1. All stages run in one process, the output of one a detached input of the next. The forwards of a
//      replica go first, then its backwards, the last stage first, each stage's microbatches in the
//      schedule's backward order of that stage.
//   2. The last stage's backward starts from float(scale / (M * dp)). Leaf gradients, in the run's precision,
//      are added to fp32 sums in that order, starting from zero.
//   3. Replicas are added in rank order: ((g0 + g1) + g2) + ...
//   4. The two uses of a tied embedding are two leaves; both become first + last.
//   5. Gradients are multiplied by float(1 / scale); when one was not finite, the step is skipped and the
//      scale backs off.
//   6. Norm: a double sum of squares a parameter, in element order; the sums added in parameter order, the
//      tied one once.
//   7. Clipping, AdamW and the copy to the model's precision, element by element (optim/adamw.h).
//
// Used by tests; plain on purpose, it shares nothing with the worker but the arithmetic of single elements.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/optim/rank_optimizer.h"
#include "engine/schedule/schedule.h"
#include "engine/train/batches.h"
#include "engine/train/model_table.h"

namespace plumbline {

class SequentialReference {
 public:
  struct Step {
    double loss = 0.0;  // mean over microbatches, then replicas
    bool found_inf = false;
    float scale = 1.0f;
    double norm = -1.0;
    double lr = 0.0;
  };

  // `config` and `batches` outlive it. `backward_order[s]` are the microbatches of stage s as its backwards
  // come.
  static Result<SequentialReference> create(const RunConfig& config, const ModelFamily& family,
                                            const BatchSource& batches,
                                            std::vector<std::vector<int>> backward_order);

  // `overflow`: as if some gradient of the step had not been finite.
  Step step(std::int64_t consumed, bool overflow = false);

  // Of the last step: reduced, unscaled, not clipped.
  std::span<const float> gradients(int stage) const;
  const ModelTable& table() const { return table_; }
  const RankOptimizer& optimizer() const {
    return optimizer_;
  }  // all parameters of the model as one flat array
  std::uint64_t params_digest() const;
  std::uint64_t optimizer_digest() const;

 private:
  SequentialReference(const RunConfig& config, const BatchSource& batches,
                      std::vector<std::vector<int>> order, std::vector<std::unique_ptr<Stage>> stages,
                      ModelTable table, RankOptimizer optimizer);
  std::vector<float> replica_gradients(std::int64_t consumed, int replica, float factor, double& loss);
  void add_leaves(int stage, std::vector<float>& sums);
  void update(Step& step, bool overflow);

  const RunConfig* config_;
  const BatchSource* batches_;
  std::vector<std::vector<int>> order_;
  std::vector<std::unique_ptr<Stage>> stages_;
  ModelTable table_;
  RankOptimizer optimizer_;
  std::vector<float> gradients_;
};

// The microbatches of every stage in the order of its B actions.
std::vector<std::vector<int>> backward_order_of(const Schedule& schedule);

}  // namespace plumbline
