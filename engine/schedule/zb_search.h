// The published zero-bubble heuristic (ZB-1p, ZB-2p): builds an order for one chunk a rank round by round,
// for given costs and an activation cap, in eight variants, and keeps the one of least stage time.
//
// A round runs one F (where there is one left) and one I on every rank. W fills gaps: whole ones, and those
// that are needed for memory. Rank r stays at least one F ahead of rank r+1. The variants answer three
// questions:
//   warm_past_backward  may the warm-up go on though it delays the rank's first I?
//   hold_forwards       may a rank two F ahead of its successor leave one out, if that costs no new bubble?
//   fill_small_gaps     does a W go into a gap smaller than itself, though the largest bubble would
//                       not grow without?
// The result is a heuristic's: stage time is small, makespan is not looked at, and below 1F1B's memory it
// can be far from the best (docs/schedules.md).
#pragma once

#include "engine/schedule/generator.h"

namespace plumbline {

struct ZbVariant {
  bool warm_past_backward = false;
  bool hold_forwards = false;
  bool fill_small_gaps = false;
};

struct ZbOrder {
  // Per rank, kinds F, I and W in order; each kind's microbatches ascend.
  std::vector<std::vector<ActionKind>> rows;
  Nanoseconds stage_time = 0;
};

// One variant. Costs and activations must have passed check_costs and check_activations; the cap must not
// be empty. An error (kConfig) if some rank's cap is too small for this variant.
Result<ZbOrder> zb_order(const GeneratorArgs& args, ZbVariant variant);

}  // namespace plumbline
