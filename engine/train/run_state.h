// What of a run is saved beside its tensors, and a rank as whoever saves it sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// What every format's loading ends with. The scheduler's state; what it and the optimizer, which is loaded before, have
// to say is added to `notices`, each text once.
Status load_scheduler(const RankState& rank, const StateDict& saved, std::vector<std::string>& notices);
// The rank's tracker and LibTorch's own generator, from "rng_tracker_states" and "torch_rng_state".
Status load_random(const RankState& rank, const StateDict& saved);

}  // namespace plumbline
