// What of a run is saved beside its tensors, and a rank as whoever saves it sees it.
#pragma once

#include <cstdint>

#include "engine/checkpoint/rng_tracker.h"
#include "engine/train/rank_model.h"

namespace plumbline {

struct RunCounters {
  std::int64_t iteration = 0;
  std::int64_t consumed_train_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  std::int64_t updates = 0, skipped = 0;  // steps
};

// A rank of this process.
struct RankState {
  Rank rank = 0;
  const RankModel* model = nullptr;
  RngTracker* random = nullptr;
};

}  // namespace plumbline
