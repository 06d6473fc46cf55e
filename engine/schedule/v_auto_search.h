// The adaptive V: tries building blocks of a uniform kind, makes an order of each (repeat, squeeze, reorder
// warm-up and cool-down, fill gaps) and keeps the one of least stage time under an activation cap.
//
// A block is a first row, the slots modulo six of rank 0's four legs, and how far the legs move from rank
// to rank: down legs d slots and up legs one, where d is one of 1 to 5, larger on the first ranks than on
// the rest. Its span decides the memory; the search is over first rows, two values of d and where they
// change.
#pragma once

#include <map>
#include <optional>

#include "engine/schedule/generator.h"
#include "engine/schedule/v_slots.h"

namespace plumbline {

struct VAutoResult {
  // Nothing if no block fits the cap, however feasible other orders are.
  std::optional<SlotRows> rows;
  Nanoseconds stage_time = 0;
  // Peak activations -> least number of idle slots of any block with that peak, among those tried.
  std::map<int, int> idle_slots_of_peak;
};

// Whether the search may stop at an order that nothing can beat, or goes through all blocks for the sake of
// the map from peaks to idle slots.
enum class VAutoGoal { kOrder, kMap };

// `cap` in chunk activations. Costs must have passed check_costs.
VAutoResult search_v_blocks(const GeneratorArgs& args, std::int64_t cap, VAutoGoal goal);

}  // namespace plumbline
