// The zero-bubble heuristic for a V of two chunks a rank: like zb_search.h, a round runs one backward and
// one forward on every rank, W fills gaps; which chunk's turn it is follows from what has arrived.
#pragma once

#include <vector>

#include "engine/schedule/generator.h"

namespace plumbline {

// Whether a W goes in front of a forward, or of leg 3's backward, when the gap is smaller than it and the
// largest idle time would grow without it. In front of leg 2's backward it always does.
struct ZbvVariant {
  bool fill_forwards = false;
  bool fill_backwards = false;
};

struct ZbvOrder {
  std::vector<std::vector<Action>> rows;
  Nanoseconds bubble = 0;  // largest idle time of a rank after its first action
};

// One variant, refined: a finished order tells which ranks may idle how long without harm, and is built
// again with that knowledge as long as the largest idle time falls. Arguments as zb_order's, with two
// chunks.
Result<ZbvOrder> zbv_order(const GeneratorArgs& args, ZbvVariant variant);

}  // namespace plumbline
