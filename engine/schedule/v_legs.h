// A V of two chunks a rank: a microbatch goes down the ranks, comes back up, and its backward does the same
// again. These four legs are what V schedules are made of; each rank runs one pass of every leg for every
// microbatch.
//
//   leg 0   F of the first half of the model    down  rank 0 .. P-1   stage r
//   leg 1   F of the second half                up    rank P-1 .. 0   stage 2P-1-r
//   leg 2   B or I of the second half           down  rank 0 .. P-1   stage 2P-1-r
//   leg 3   B or I of the first half            up    rank P-1 .. 0   stage r
//
// Weight gradients belong to legs 2 and 3 as well.
#pragma once

#include "engine/schedule/generator_support.h"

namespace plumbline {

constexpr int kLegs = 4;

constexpr bool leg_goes_down(int leg) { return leg % 2 == 0; }
constexpr bool leg_is_forward(int leg) { return leg < 2; }
constexpr int leg_stage(int ranks, int rank, int leg) {
  return v_stage(ranks, rank, leg == 0 || leg == 3 ? 0 : 1);
}
// The rank that a leg comes from, -1 where it starts from the rank's own previous leg (or the data).
constexpr int leg_source(int ranks, int rank, int leg) {
  const int from = leg_goes_down(leg) ? rank - 1 : rank + 1;
  return from < ranks ? from : -1;
}

// The V's begin: name, sizes and placement.
inline Schedule begin_v_schedule(const GeneratorArgs& args, std::string_view name, Backward backward) {
  Schedule schedule = begin_schedule(args, name, backward);
  schedule.rank_of_stage = wave_placement(schedule.stages, schedule.ranks);
  return schedule;
}

}  // namespace plumbline
