// Before any of them connects, the ranks compare what each is about to run: one that was started with another
// configuration would otherwise hang, or train something else.
#pragma once

#include <string>

#include "backends/processes/store.h"
#include "engine/base/result.h"
#include "engine/config/rank_grid.h"

namespace plumbline::processes {

// What a rank is about to run.
struct RankCard {
  int world = 1;
  std::string program;  // digest of all Programs of the run
  std::string config;   // digest of the configuration
  std::string data;     // digest of the training text
  bool operator==(const RankCard&) const = default;
};

// Waits for the cards of all ranks. Errors: ranks that did not come within `seconds` (kTimeout), and ranks whose
// card is not that of most (kState), both by number. All ranks get the same one.
Status agree(Store& store, Rank rank, const RankCard& own, double seconds);

}  // namespace plumbline::processes
