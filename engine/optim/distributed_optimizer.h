// DistributedOptimizer: the data-parallel ranks of a group share main parameters and moments instead of each
// having all (megatron/core/optimizer/distrib_optimizer.py).
//
//   reduce-scatter of every gradient bucket  ->  overflow, norm, clip and update of the own shard
//                                            ->  all-gather of every parameter bucket
//
// It takes the place of the model's parameters in the base optimizer's groups with shards: first those of fp32
// parameters (views of the model's own memory), then the fp32 copies of the shards of 16-bit ones, each in the
// buffers' order. A group that owns nothing on this rank stays, empty; a rank that owns padding only or nothing
// takes part in every reduction. Each group counts its step, so empty ones count too.
//
// Equal bits: sums are taken in member order, the norm is exact, the update is per element. So one step equals the
// replicated optimizer's bit for bit, whatever the bucket size and the number of ranks.
//
// State a model parameter, fp16/bf16, Adam: 2 bytes of model and 12 / dp of main copy and moments.
//
// Driven by step(): reductions through `dp` and the stats group. Driven by a Program: `dp` is null, the Program
// reduce-scatters buffers' gradients, and all-gathers buffers' parameters after finish_step(). Overlap: buckets may
// be reduced one by one while the backward runs; step() reduces those that are left.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/optim/grad_buffer.h"
#include "engine/optim/mixed_precision_optimizer.h"
#include "engine/optim/state_pieces.h"

namespace plumbline {

class DistributedOptimizer : public MixedPrecisionOptimizer {
 public:
  struct Placement {
    std::vector<std::shared_ptr<GradBuffer>> buffers;  // of all parameters in the groups, distributed
    std::shared_ptr<Collective> dp;  // the buffers' reduction group; null: a Program does the reductions
    float gradient_scale = 1.0f;     // multiplies gradients before their sum; 1/dp makes it a mean
    // Precision of the main copies of 16-bit parameters: f32, with precision-aware states f16 or bf16 too.
    DType main_params_type = DType::kF32;
    // Whether save_parameter_state() and load_parameter_state() may be used: they go over data-parallel ranks
    // on the CPU side (Megatron: use_gloo_process_groups). Off: refused with that rule.
    bool parameter_state = true;
  };
  // `inner`'s groups hold the model's parameters; states they already have are cut into shards. Refused: a
  // parameter in no buffer or two, a buffer's parameter in no group, buffers whose shards are not dp's ranks,
  // fp16 without a scaler, main copies in 16 bits without precision-aware states.
  static Result<std::unique_ptr<DistributedOptimizer>> create(std::unique_ptr<BaseOptimizer> inner,
                                                              MegatronOptimizerOptions options,
                                                              LossScaler scaler, Placement placement,
                                                              InitStateFn init_state = {});

  // One shard, in the order of the flattened groups.
  struct Shard {
    ParameterPtr model;   // the whole parameter
    ParameterPtr main;    // what the base optimizer works on: 1-D
    ParameterPtr target;  // 16-bit view that receives the rounded result; null for fp32 parameters
    int buffer = 0, bucket = 0;
    ParamShard range;
    at::Tensor gradient;  // view of the gradient buffer, in its precision
  };
  const std::vector<Shard>& shards() const { return shards_; }
  const std::vector<std::shared_ptr<GradBuffer>>& buffers() const { return placement_.buffers; }

  // --- buckets, numbered over the buffers in order
  int buckets() const { return static_cast<int>(buckets_.size()); }
  // Scales and reduce-scatters one bucket. At most once a step; the same order on all ranks.
  Status reduce_scatter_bucket(int bucket);
  // Those not yet reduced in this step, which ends with copy_model_grads_to_main_grads(). With check_for_nan and no
  // scaler every rank looks at its whole buckets before they are summed, so that the message names the rank whose
  // gradient it is; all ranks return an error then.
  Status sync_gradients() override;
  // Clips, updates the own shards and rounds them into the model; no communication.
  Status step_shard(double norm) { return finish_step(norm); }
  Status all_gather_bucket(int bucket);
  Status sync_params() override;  // all buckets

  void copy_model_grads_to_main_grads() override;
  // Of shards and of the model's parameters; the buffers are the wrapper's to clear.
  void zero_grad(bool set_to_none = true) override;

  // --- state
  // Without a state dict: model -> main shards. With one: each parameter's values are those of the entry whose
  // name ends with the parameter's, which must be exactly one and have its shape; nested dictionaries count as
  // names joined with dots. An error changes nothing.
  Status reload_model_params(const StateDict* state = nullptr) override;
  // {"optimizer": {"param_groups": [settings with step, ...]}, "grad_scaler": ...}: equal on all ranks, without
  // parameter lists and states. Loading makes the states (zeros), which load_parameter_state() fills.
  StateDict state_dict(bool is_loading = false) override;
  Status load_state_dict(const StateDict& state) override;
  // Own pieces (state_pieces.h); all ranks call it together, and the pieces of all are verified to cover every
  // parameter exactly. Without a Collective: verified against the layout.
  bool has_parameter_state() const override { return true; }
  Result<StateDict> save_parameter_state() override;
  // `state`: the merged pieces of all ranks, of any data-parallel and bucket size. With update_legacy_format:
  // Megatron's form (distributed_legacy.cc). Checked before anything changes.
  Status load_parameter_state(const StateDict& state, bool update_legacy_format = false) override;
  Status load_sharded_objects(const std::vector<ShardedObject>& objects,
                              const ShardedMetadata& metadata) override;

 protected:
  void localize(std::size_t position, const ShardedMetadata& metadata, ShardedTensor& tensor) const override;

 private:
  struct BucketPlace {
    int buffer = 0, bucket = 0;
    bool reduced = false;
  };

  DistributedOptimizer(std::unique_ptr<BaseOptimizer> inner, MegatronOptimizerOptions options,
                       LossScaler scaler, Placement placement, InitStateFn init_state);
  Status check_parameter_state(const char* what) const;
  void build_shards();
  void add_shards(const std::vector<const Parameter*>& group, bool fp32);
  Shard make_shard(int buffer, int bucket, const ParamShard& range) const;
  void split_states();
  Status agree_before_reduction();
  void fill_group_steps(std::int64_t fallback);
  ParamSizes sizes() const;  // of all parameters in the buffers
  std::vector<StatePiece> own_pieces();
  Status verify_own_pieces(const std::vector<StatePiece>& pieces) const;
  Result<std::vector<FlatRange>> ranges_of_all(const std::vector<StatePiece>& pieces) const;
  Result<std::int64_t> common_step() const;  // of all groups
  Result<std::vector<std::optional<std::int64_t>>> check_pieces(const PieceIndex& pieces) const;
  Status load_pieces(const PieceIndex& pieces);

  Placement placement_;
  std::vector<BucketPlace> buckets_;
  std::vector<Shard> shards_;
  std::vector<std::vector<std::string>> piece_names_;  // of all parameters, by group; own shards or not
  Status before_reduction_;  // what check_for_nan found in whole buckets, before they were summed
};

// Megatron's parameter state on one rank, as pieces: {"buckets_coalesced": True, "0": {"<types>": {"param": ...,
// "exp_avg": ..., "exp_avg_sq": ..., "numel_unpadded": n}}}, buffers numbered in order. Buckets follow each other
// without their padding; the lengths must be numel_unpadded, and that the buffer's. The older form, a list with a
// dictionary for each bucket (padding at its end or not), is read too. The file has no steps: `step` comes from
// the state dict, which is loaded first.
Result<std::vector<StatePiece>> pieces_of_legacy(const StateDict& state,
                                                 const std::vector<std::shared_ptr<GradBuffer>>& buffers,
                                                 std::int64_t step);

}  // namespace plumbline
