// The end of a training step, after the last backward: gradient reduction, agreement on overflow, norm, step or
// skip. Order of the reductions: copies of a stage (model_buffers.h), data parallel, then the tied embedding over
// {first, last}
// (megatron/core/distributed/finalize_model_grads.py); found_inf is agreed over every rank before anything
// depends on it.
//
//   replicated      all-reduce of gradients; the norm is summed over the model-parallel ranks
//   distributed     reduce-scatter; from there on a rank works on its shards, also of the tied embedding, the norm
//                   is summed over all ranks, and an all-gather of the parameters follows (or begins the next step)
//
// With a loss scale found_inf is read and decided on: norm, clipping and step on one arm, the scaler's back-off on
// the other.
//
// Post-validation (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 4): nobody waits for the agreement.
// Every rank snapshots its optimizer state and steps with its own, unclipped gradients unless they overflowed;
// found_inf and the norm are reduced beside that; then it keeps the step, takes it back, or takes it back and does
// it again, clipped. There is no decision of the host.
#pragma once

#include <vector>

#include "engine/config/run_config.h"
#include "engine/program/lower.h"
#include "engine/program/model_buffers.h"
#include "engine/program/overlap.h"
#include "engine/program/program.h"
#include "engine/schedule/schedule.h"

namespace plumbline::lowering {

class Tail {
 public:
  // Adds the slots, families, streams and variables that all ranks share. `buffers` outlives it.
  Tail(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes,
       const ModelBuffers& buffers, Program& program);

  // Adds one pipeline coordinate's kernels, slots and endpoints; ranks come in order.
  void add_rank(int rank);
  void begin(int rank, std::vector<Item>& items) const;  // zero the gradients
  // Everything after the last backward; overlapped reductions have begun.
  void finish(int rank, Overlap& overlap, std::vector<Item>& items) const;

 private:
  struct Rows {
    std::vector<int> stages;
    unsigned zero, collect_tied, merge_tied, unscale, norm, step, skip, validate;  // kernels
    unsigned reduce_tied, reduce_found, reduce_norm;                               // endpoints
    bool sends_tied, merges_tied;
  };
  using Slots = std::vector<std::uint16_t>;

  unsigned family(const char* name, std::vector<std::vector<Rank>> instances);
  std::uint16_t slot(std::string name, SlotKind kind, DType dtype, Bytes bytes);
  unsigned all_reduce(int rank, unsigned family, std::uint16_t slot, ReduceOp op);
  void families(const RunConfig& config);
  void tied_rows(int rank, Rows& rows);
  void step_rows(int rank, Rows& rows);
  void speculative_rows(int rank, Rows& rows);
  unsigned kernel(KernelKind kind, int rank, const Rows& rows, RowList reads, RowList frees, RowList writes);
  Slots gradients(const Rows& rows) const;
  Slots parameters(const Rows& rows) const;

  void launch(unsigned kernel, unsigned arm, std::vector<Item>& items) const;
  void post(unsigned endpoint, unsigned flags, std::vector<Item>& items) const;
  void reduce_gradients(const Rows& rows, Overlap& overlap, std::vector<Item>& items) const;
  void decide_and_step(const Rows& rows, std::vector<Item>& items) const;
  void step_and_validate(const Rows& rows, std::vector<Item>& items) const;
  void gather(const Rows& rows, unsigned arm, std::vector<Item>& items) const;

  Program& program_;
  const Schedule& schedule_;
  const ModelBuffers& buffers_;
  const OptimizerConfig& options_;
  bool scaled_;  // a loss scaler takes part
  bool has_tied_;
  bool tied_between_ranks_;
  bool agrees_on_norm_;
  Bytes state_element_;  // optimizer state a parameter
  std::uint16_t tied_slot_ = 0, found_slot_ = 0, local_found_slot_ = 0, norm_slot_ = 0;
  unsigned tied_family_ = 0, world_family_ = 0, norm_family_ = 0;
  std::vector<Rows> rows_;
};

}  // namespace plumbline::lowering
