// Schedule: who computes what, in which order. One row of actions a pipeline rank, in one array with offsets;
// a table says which rank holds which stage. Rows may hold computations only, or computations and the
// communication between them (torch's compute_comms form).
//
// The dependency rule, used by the validity check, the lowering, the drawing and the time estimates alike:
//   F(s,m) needs F(s-1,m);  B(s,m) and I(s,m) need F(s,m) and B or I of (s+1,m);  W(s,m) needs I(s,m).
//
// Two extensions, both off by default. A bidirectional schedule runs several pipelines over the same ranks, each with
// its own copy of every stage; a microbatch passes through one of them. A sequence may be cut into slices that pass
// one after another: then every "microbatch" below is one slice, slice k of sequence q is number q * slices + k, and
// on each stage F of a slice also needs F of the slice before it, B or I also needs that of the slice after it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/action.h"

namespace plumbline {

struct Schedule {
  std::string name;
  int ranks = 0;
  int stages = 0;
  int microbatches = 0;
  bool forward_only = false;
  int slices = 1;  // divides `microbatches`
  // `stages` entries, and as many again for each further pipeline; -1: nobody holds it (fragments only).
  std::vector<std::int32_t> rank_of_stage;
  std::vector<std::uint8_t> pipeline_of;  // of a microbatch; empty: all are in pipeline 0
  std::vector<Action> actions;
  std::vector<std::uint32_t> offsets{0};  // size ranks + 1

  std::span<const Action> row(int rank) const {
    const std::size_t r = static_cast<std::size_t>(rank);
    return std::span<const Action>(actions).subspan(offsets[r], offsets[r + 1] - offsets[r]);
  }
  int pipelines() const { return stages == 0 ? 1 : static_cast<int>(rank_of_stage.size()) / stages; }
  // Who computes this stage for this microbatch; both must be in range.
  std::int32_t rank_of(int stage, int microbatch) const {
    const std::size_t first = pipeline_of.empty() ? 0 : pipeline_of[static_cast<std::size_t>(microbatch)];
    return rank_of_stage[first * static_cast<std::size_t>(stages) + static_cast<std::size_t>(stage)];
  }
  // The rank's stages in ascending order, of all pipelines; a chunk is an index into it.
  std::vector<int> stages_of_rank(int rank) const;
  bool has_communication() const;

  // Appends a finished row; rows are added in rank order. The caller sets `ranks`, which must equal their
  // number.
  void add_row(std::span<const Action> row);

  bool operator==(const Schedule&) const = default;
};

// Stage s on rank s mod ranks: Megatron's and torch's "loop" placement.
std::vector<std::int32_t> loop_placement(int stages, int ranks);
// Down the ranks and back up again: a V with two chunks a rank, waves with more. `ranks` divides `stages`.
std::vector<std::int32_t> wave_placement(int stages, int ranks);

// What a computation waits for: at most three computations (own forward, the neighbour stage's, the neighbour
// slice's).
struct Dependencies {
  int count = 0;
  Action on[3];
};
// kBackward in the answer stands for "B or I of that stage and microbatch".
Dependencies dependencies(const Action& action, int stages, bool forward_only, int slices = 1);

// A fault of a schedule, with the place in it.
//   range      a stage, microbatch or neighbour that does not exist; a backward in a forward-only schedule
//   placement  a stage that nobody holds, or an action on another rank than the stage's
//   pair       an overlapped pair that is not one forward and one backward, or whose halves need each other
//   duplicate  a computation that is done twice, or both as B and as I or W
//   missing    computations nobody does; a run of microbatches is one finding, at position 0 of the rank
//   order      a computation before what it needs on the same rank
//   cycle      ranks that wait for each other
//   sharding   where rows list UNSHARD or RESHARD: a computation with parameters that are not gathered, gathered twice,
//              dropped without being gathered, or left gathered
//   channel    messages of one direction between two ranks are received in another order than sent (comm_check.h)
struct ScheduleFinding {
  std::string rule;  // one of the names above
  std::string why;   // one sentence naming actions and ranks
  int rank = 0;
  int position = 0;  // index into the row
};

// Structure: every (stage, microbatch) has exactly one F and, unless forward only, one B or one I and one W; each
// on the stage's rank, each stage on one rank, in an order that the dependencies allow over all ranks together.
// With `fragment`, computations that are not listed count as done, so only duplicates, ranges, placement and order
// are checked.
//
// What rows list beside computations is held to the same rules, where they list any of it: each tensor between two
// ranks has one send behind what makes it and one receive ahead of what reads it; each stage one REDUCE_GRAD behind
// its last gradient. Whether the calls can wait for each other in a cycle is the business of the Program's checks.
// Linear in the number of computations, times a logarithm in that of transfers. Findings come rule by rule, in the
// order of the list above, those of what stands beside computations last.
std::vector<ScheduleFinding> validate_schedule(const Schedule& schedule, bool fragment = false);

}  // namespace plumbline
