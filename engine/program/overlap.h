// Overlap: where, between the chunk passes of one rank, its gradient reductions begin and its parameters are
// gathered (--overlap-grad-reduce, --overlap-param-gather). Collectives keep their
// handles and run on the data-parallel stream beside the pipeline's work.
//
//   gradients   default: right after the chunk's last backward. Aligned (--align-grad-reduce), interleaved: after
//               the rank's k-th backward that of the chunk whose last one was r backwards ago, on rank r, so that
//               all ranks of a pipeline begin at about the same time; what is left begins after the last backward.
//               Aligned, one chunk: rank 0 as by default, the others after the pipeline's work.
//   parameters  default: at the step's begin. Aligned, interleaved: chunks 0 and 1 then, chunk c before the forward
//               that is r forwards before the first of chunk c-1. Awaited before the chunk's first forward.
//
// Lists of actions that have no Megatron calls (CSV, generators by name) use the default, unless they say by
// REDUCE_GRAD where a stage's reduction begins: then these begin there, and no others. Where a stage has copies on
// several ranks, all of these begin their reductions in the order in which the lowest of them gets through, each when
// all stages before it in that order are through as well: a communicator's collectives pair by order. In DualPipe and
// Chimera with one pair two ranks hold a stage and their rows are each other's mirror, so that they get through with it
// at one time, and neither needs from the other what stands behind its own reduction. Where it is not so (four holders,
// Chimera with two pairs) one that is ahead would hold up, with kernels in launch order, what another still needs: they
// begin behind the last computation.
#pragma once

#include <vector>

#include "engine/config/run_config.h"
#include "engine/program/model_buffers.h"
#include "engine/program/program.h"
#include "engine/program/script.h"

namespace plumbline::lowering {

// Handle queues; the pipeline's calls use 0 to 2.
constexpr unsigned kReduceQueue = 3;
constexpr unsigned kGatherQueue = 4;

class Overlap {
 public:
  // One chunk pass of the rank.
  struct Pass {
    int stage = 0;
    int microbatch = 0;
  };
  struct Plan {
    int rank = 0;                    // pipeline coordinate
    bool calls = false;              // made of Megatron's calls, so that alignment has a meaning
    bool reduces = false;            // reductions overlap
    bool listed_reductions = false;  // where the rows say: reduce_now()
    bool gathers = false;            // gathers overlap
    bool align_reduce = false;
    bool align_gather = false;
    // Where others hold copies of the stages: the order in which all holders begin their reductions; empty: as each
    // stage is through.
    std::vector<int> agreed;
    bool holders_meet = false;              // two holders, whose rows are each other's mirror
    std::vector<int> stages;                // held by the rank, ascending: its chunks
    std::vector<Pass> forwards, backwards;  // in the rank's order; those that add to gradients
  };

  // Does nothing.
  Overlap() = default;
  Overlap(const ModelBuffers& buffers, Plan plan);

  void begin(std::vector<Item>& items);           // at the step's begin
  void before_forward(std::vector<Item>& items);  // the next one of `forwards`
  void after_backward(std::vector<Item>& items);  // of the next one of `backwards`
  // Any computation: reductions of copies that are due begin only here, when what the last one made has been sent. A
  // holder that is not as far could wait for that.
  void before_computation(std::vector<Item>& items);
  // A REDUCE_GRAD of the rows.
  void reduce_now(int stage, std::vector<Item>& items);
  bool reduces() const { return plan_.reduces || plan_.listed_reductions; }
  // Whether the stage's reduction has begun.
  bool reduced(int stage) const;
  // After the pipeline's work: what has not begun begins.
  void finish(std::vector<Item>& items);
  // The compute stream waits for all reductions that have begun.
  void wait_for_reductions(std::vector<Item>& items);

 private:
  bool interleaved() const { return plan_.calls && plan_.stages.size() > 1; }
  int chunk_of(int stage) const;
  bool is_last_backward(std::size_t index) const;  // of its chunk
  void reduce(int chunk, std::vector<Item>& items);
  void reduce_agreed(std::size_t count, std::vector<Item>& items);
  void gather(int chunk, std::vector<Item>& items);
  void wait_for_gathers(int chunk, std::vector<Item>& items);
  void aligned_gather(std::vector<Item>& items);

  const ModelBuffers* buffers_ = nullptr;
  Plan plan_;
  std::size_t next_forward_ = 0, next_backward_ = 0;
  std::vector<std::size_t> last_backward_;  // of each chunk
  std::vector<bool> reduced_, gathered_;
  std::size_t next_agreed_ = 0, through_ = 0;  // of `agreed`; of `backwards`
  std::vector<std::pair<int, int>> awaited_;   // chunk and handles of gathers not waited for, oldest first
  int reductions_ = 0;                         // handles kept
};

// Passes of a script, stages from chunks (chunk * ranks + rank).
std::vector<Overlap::Pass> passes_of(const Script& script, StepKind kind, int ranks, int rank);

}  // namespace plumbline::lowering
