// ModelBuffers: the contiguous gradient buffer of every stage, and with the distributed optimizer the parameter
// buffer of the same layout (param_layout.h), as slots of a Program; and the collectives over data parallel that
// work on them, one a bucket.
//
//   replicated optimizer    gradients: all-reduce
//   distributed optimizer   gradients: reduce-scatter; parameters, after the step: all-gather
//
// A model chunk has a buffer of its own, as each of Megatron's wrapped chunks has. With one replica there are
// buffers but no collectives.
//
// Sharding. Where a schedule lists UNSHARD and the optimizer is distributed over several replicas, a rank keeps its
// shards of a stage's parameters alone. UNSHARD puts the own shard into a new buffer and gathers the others', RESHARD
// releases the buffer, REDUCE_GRAD is the reduction of the stage's gradients. Where parameters are replicated, UNSHARD
// and RESHARD have nothing to do.
//
// Copies. Where several pipelines run over the same ranks, each holds a copy of every stage. Before anything else the
// gradients of a stage's copies are added up by an all-reduce over its holders in one replica, in rank order, so that
// all copies go the same way. Only schedules whose ranks hold equal sets of stages where they share one. Where
// reductions overlap with the pipeline's work, a stage's copies are added up as soon as each holder is through with it,
// and the reduction over data parallel waits for that by an event, stream to stream.
#pragma once

#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/program/lower.h"
#include "engine/program/param_layout.h"
#include "engine/program/program.h"
#include "engine/schedule/schedule.h"

namespace plumbline::lowering {

class ModelBuffers {
 public:
  // Refuses sizes that do not describe the tensors a layout needs.
  static Result<ModelBuffers> create(const RunConfig& config, const Schedule& schedule,
                                     const ModelSizes& sizes);

  // In this order: the slots of all stages; the families "copies" and "dp" and their streams; the endpoints of one
  // stage, each once. Gradient slots are left out of Programs that only read parameters.
  void add_slots(Program& program, bool gradients);
  void add_families(const RankGrid& grid, Program& program);
  void add_endpoints(int stage, Program& program);

  bool distributed() const { return distributed_; }
  bool communicates() const { return replicas_ > 1; }
  bool has_copies() const { return !holders_.empty(); }
  bool sharded() const { return sharded_; }  // parameters, between computations
  std::uint16_t gradients(int stage) const { return rows_[index(stage)].gradients; }
  std::uint16_t parameters(int stage) const { return rows_[index(stage)].parameters; }  // distributed only
  // What a step of the optimizer writes: the parameters, or this rank's shards of them (distributed only).
  std::uint16_t updated(int stage) const { return sharded_ ? rows_[index(stage)].shard : parameters(stage); }
  const ParamLayout& layout(int stage) const { return rows_[index(stage)].layout; }
  // Optimizer state that one rank keeps for the stage, in parameters: all, or its shards (padding included).
  std::int64_t owned(int stage) const;
  // Bytes of the tied embedding's gradient that one rank sends: all of it, or its shard.
  Bytes tied_bytes(int stage) const { return rows_[index(stage)].tied_bytes; }

  // Appends the stage's collectives, a bucket an item, and says how many these are. `flags` beside kAfterCompute;
  // `queue` for kHandle. reduce() is over data parallel alone, reduce_all() over copies before that.
  int reduce_all(int stage, unsigned flags, unsigned queue, std::vector<Item>& items) const;
  // Pipeline coordinates that hold this rank's stages, ascending.
  std::vector<int> holders(int rank) const;
  int reduce(int stage, unsigned flags, unsigned queue, std::vector<Item>& items) const;
  void add_copies(int stage, std::vector<Item>& items) const;
  // Gathers a sharded stage; kept under its slot (kWaitSlot). And lets it go.
  void unshard(int stage, std::vector<Item>& items) const;
  void reshard(int stage, std::vector<Item>& items) const;
  int gather(int stage, unsigned flags, unsigned queue, std::vector<Item>& items) const;

 private:
  struct Row {
    ParamLayout layout;
    std::uint16_t gradients = 0, parameters = 0, shard = 0;  // slots
    unsigned unshard = 0, reshard = 0;                       // kernels
    unsigned reduce = 0, gather = 0;  // first endpoint; one a bucket, in the buffer's order
    unsigned copies = 0;              // endpoint, of the whole buffer
    bool has_endpoints = false;
    Bytes tied_bytes = 0;
  };
  Status check_sync(const RunConfig& config, const Schedule& schedule) const;
  bool adds_copies() const { return has_copies() && has_gradients_; }
  static std::size_t index(int stage) { return static_cast<std::size_t>(stage); }
  int issue(unsigned first, int stage, unsigned flags, unsigned queue, std::vector<Item>& items) const;
  unsigned add_endpoints(EndpointKind kind, std::uint16_t slot, const Row& row, Program& program) const;

  bool distributed_ = false;
  bool sharded_ = false;
  bool has_gradients_ = false;  // their slots were added
  int replicas_ = 1;
  DType parameter_type_ = DType::kF32;
  std::uint16_t family_ = 0, copies_family_ = 0;
  unsigned stream_ = 0, copies_stream_ = 0;
  unsigned copies_event_ = 0;  // when a stage's copies have been added up
  std::vector<std::vector<int>>
      holders_;            // sets of pipeline coordinates that hold the same stages; two or more each
  std::vector<Row> rows_;  // by stage
};

}  // namespace plumbline::lowering
