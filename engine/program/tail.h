// The end of a training step, after the last backward: gradient reduction, agreement on overflow, norm, step
// or skip. Order of the reductions: data parallel first, then the tied embedding over {first, last}
// (megatron/core/distributed/ finalize_model_grads.py); found_inf is agreed over every rank before anything
// depends on it.
#pragma once

#include <vector>

#include "engine/config/run_config.h"
#include "engine/program/lower.h"
#include "engine/program/program.h"
#include "engine/schedule/schedule.h"

namespace plumbline::lowering {

class Tail {
 public:
  // Adds slots, families, streams, variables, endpoints and the kernels of every pipeline coordinate.
  Tail(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes, Program& program);

  void begin(int rank, std::vector<Item>& items) const;   // zero the gradients
  void finish(int rank, std::vector<Item>& items) const;  // everything after the last backward

 private:
  struct Rows {
    unsigned zero, collect, collect_tied, merge_tied, unscale, norm, step, skip;  // kernels
    unsigned reduce_grads;                                                        // endpoint
    bool holds_first, holds_last;
  };
  unsigned family(const char* name, std::vector<std::vector<Rank>> instances);
  unsigned slot(std::string name, SlotKind kind, DType dtype, Bytes bytes);
  unsigned reduce(const char* name, unsigned family, unsigned slot, ReduceOp op);
  Rows rank_rows(int rank, const Schedule& schedule, const ModelSizes& sizes);
  void launch(unsigned kernel, unsigned arm, std::vector<Item>& items) const;
  void all_reduce(unsigned endpoint, unsigned arm, std::vector<Item>& items) const;

  Program& program_;
  bool scaled_;  // a loss scaler takes part
  bool tied_;    // an embedding is shared over two ranks
  bool replicated_;
  bool pipelined_;
  unsigned tied_slot_ = 0, found_slot_ = 0, norm_slot_ = 0;
  unsigned dp_family_ = 0, reduce_tied_ = 0, reduce_found_ = 0, reduce_norm_ = 0;
  std::vector<Rows> rows_;
};

}  // namespace plumbline::lowering
