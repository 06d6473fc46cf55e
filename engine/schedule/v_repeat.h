// V schedules of controllable memory (V-Min, V-Half, V-ZB): a microbatch's four legs get fixed slots on
// every rank, spaced so that the same block can be repeated every six slots without a collision; how long a
// leg's passes lie apart decides what a rank holds. The repeated blocks are then moved together without
// raising the peak, and weight gradients fill the free slots.
//
//   one block of V-Min on three ranks: the forwards 0 and 1, the backwards 2 and 3; the next microbatch's block
//   lies six slots behind
//
//   rank 0   0 . . . . 1 . . 2 . . . . 3
//   rank 1   . 0 . . 1 . . . . 2 . . 3 .
//   rank 2   . . 0 1 . . . . . . 2 3 . .
#pragma once

#include <array>
#include <vector>

#include "engine/schedule/v_legs.h"

namespace plumbline {

constexpr int kBlockSlots = 6;

// Slot of each leg's pass for microbatch 0, per rank; microbatch m runs kBlockSlots * m later.
using LegSlots = std::array<std::int64_t, kLegs>;

// The rows of the repeated, tightened and filled blocks; all six passes of every microbatch. Slots of
// different legs of a rank must differ modulo kBlockSlots, and each leg's slot must lie behind the pass
// that it needs.
std::vector<std::vector<Action>> repeat_blocks(const std::vector<LegSlots>& block, int microbatches);

// A whole schedule from a block. One chunk pair a rank, split backward.
Result<Schedule> v_block_schedule(const GeneratorArgs& args, std::string_view name,
                                  const std::vector<LegSlots>& block);

}  // namespace plumbline
