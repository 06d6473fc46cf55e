// RankModel: what training changes on one rank - the parameters of its stages, their gradient buffers, the
// optimizer and its scheduler - and the parts of it that a rank is responsible for, for digests and proofs. The
// Program's phases are the worker's; nothing here communicates.
//
// Buffers are laid out as the lowering laid out the slots (param_layout.h), one a stage, and lie in the slots once
// these are bound. With the distributed optimizer the model's tensors lie in the parameter slots too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/stage.h"
#include "engine/optim/chained_optimizer.h"
#include "engine/optim/grad_buffer.h"
#include "engine/optim/param_scheduler.h"
#include "engine/optim/setup.h"
#include "engine/optim/sharded_tensor.h"
#include "engine/train/compute_place.h"
#include "engine/train/model_table.h"

namespace plumbline {

class RankModel {
 public:
  struct Parts {
    const RunConfig* config = nullptr;  // outlives it
    Rank rank = 0;
    std::vector<Stage*> stages;          // of the whole model, null where another rank holds it; outlive it
    std::vector<ParameterSlice> slices;  // ModelTable::slices of the stages held
    std::vector<GroupKey> known_keys;    // of the whole model, so that all ranks have the same groups
    // Whether this is all there is (the sequential reference): gradients have memory of their own, and states that
    // would be sharded over replicas are in one shard.
    bool alone = false;
    // Where the stages compute; null: in host memory. Their leaves are then views, from there, of the parameters here.
    const ComputePlace* place = nullptr;  // outlives it
  };
  static Result<std::unique_ptr<RankModel>> create(Parts parts);

  const std::vector<ParameterSlice>& slices() const { return parts_.slices; }
  Parameter& parameter(std::size_t slice) const { return *params_[slice]; }
  ChainedOptimizer& optimizer() const { return *made_.optimizer; }
  OptimizerParamScheduler& scheduler() const { return *made_.scheduler; }
  float scale() const;  // of the loss; 1 without a scaler
  const LossScaler* scaler() const { return optimizer().scaler(); }
  double lr() const;  // of parameters without settings of their own

  // The stage's buffer lies in `memory` from now on.
  void bind_gradients(int stage, std::byte* memory);
  void bind_parameters(int stage, std::byte* memory);
  // Sharded parameters. From bind_shard() on this rank keeps its own parts alone, bucket after bucket in `memory`, and
  // only these may be looked at; unshard() begins a whole buffer with them, in which the model computes until
  // reshard().
  void bind_shard(int stage, std::byte* memory);
  void unshard(int stage, std::byte* whole);
  void reshard(int stage);
  bool sharded() const { return !shards_.empty(); }

  // Before a stage computes elsewhere: its leaves look at where the parameters lie now.
  void follow_parameters(int stage);

  void zero_gradients();
  // Adds the leaf gradients of a stage's last backward to its buffer and drops them.
  Status collect_leaf_gradients(int stage);
  // Takes them from the leaves without adding, and puts them back: between the parts of a backward. By slice;
  // undefined where there is none.
  std::vector<at::Tensor> take_leaf_gradients(int stage);
  void put_leaf_gradients(std::vector<at::Tensor> gradients);
  // Own part of a slice's main gradient, flat: all of it, or this rank's shard of its bucket (a tied parameter has
  // a bucket of its own; padding is included).
  at::Tensor tied_gradient(std::size_t slice) const;
  std::vector<std::size_t> tied_slices() const;  // at most two

  // What this rank answers for: whole parameters, or its shards of them.
  struct OwnPart {
    const ParameterSlice* slice = nullptr;
    std::int64_t begin = 0;  // in the flattened parameter
    at::Tensor value;        // of the model, in its precision; flat
    at::Tensor gradient;     // main gradient, flat
    at::Tensor main;         // what the optimizer updates; value itself in fp32
    ParamState state;        // tensors undefined where there is none yet
    std::int64_t end() const { return begin + value.numel(); }
  };
  std::vector<OwnPart> own_parts() const;
  // Weights of a checkpoint, "model.<name>": what this rank saves - the elements that its optimizer updates, which
  // hold after a step whether or not they have been gathered - and what it loads, which is all it has.
  std::vector<ShardedTensor> weights_to_save() const;
  std::vector<ShardedTensor> weights_to_load() const;
  MegatronOptimizer::ShardedMetadata sharded_metadata() const;
  // Name and bytes of a whole parameter in the model's precision, as this rank has it.
  std::uint64_t parameter_digest(const ParameterSlice& slice) const;

 private:
  explicit RankModel(Parts parts) : parts_(std::move(parts)) {}
  Status make_parameters();
  Status add_to_main(std::size_t slice, const at::Tensor& gradient);
  Status make_buffers();
  template <typename Visit>
  void for_each_shard(int stage, Visit visit) const;
  GradBuffer* buffer(int stage) const { return buffers_[static_cast<std::size_t>(stage)].get(); }
  at::Tensor& leaf(const ParameterSlice& slice) const;            // of the stage
  const at::Tensor& value_of(const ParameterSlice& slice) const;  // in host memory
  ShardedTensor whole_weight(const ParameterSlice& slice) const;

  Parts parts_;
  std::vector<ParameterPtr> params_;                  // by slice
  std::vector<std::shared_ptr<GradBuffer>> buffers_;  // by stage; null: not held, or without parameters
  std::map<int, std::byte*> shards_;                  // by stage, where parameters are sharded
  OptimizerAndScheduler made_;
};

// Digests of one parameter and of its optimizer state. `parts`: each element once, ascending.
struct ParameterDigests {
  std::uint64_t value = 0, state = 0;
};
ParameterDigests digest_of_parameter(std::span<const RankModel::OwnPart> parts);
// Digests of the whole model from the parts of all ranks together, the same for every layout: over parameters, and
// over main parameters, moments and step counts. `parts`: each element of each counted parameter once.
struct ModelDigests {
  std::uint64_t parameters = 0, optimizer = 0;
};
ModelDigests digest_of_model(std::vector<RankModel::OwnPart> parts, int parameters);
// Of one part's optimizer state.
std::uint64_t state_digest(const RankModel::OwnPart& part);

}  // namespace plumbline
