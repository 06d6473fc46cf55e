#include "engine/schedule/csv_pipelines.h"

#include <algorithm>

namespace plumbline::detail {
namespace {

constexpr std::size_t kMostPipelines = 16;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

using Placement = std::vector<std::int32_t>;

bool some_stage_has_two_ranks(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.row(rank)) {
      if (is_compute(action.kind) && schedule.rank_of_stage[action.stage] != rank) return true;
    }
  }
  return false;
}

// One a microbatch; empty if a stage of some microbatch is computed on two ranks, or on none.
std::vector<Placement> placements_of(const Schedule& schedule) {
  std::vector<Placement> placements(at(schedule.microbatches), Placement(at(schedule.stages), -1));
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.row(rank)) {
      if (!is_compute(action.kind)) continue;
      std::int32_t& holder = placements[at(action.microbatch)][action.stage];
      if (holder >= 0 && holder != rank) return {};
      holder = rank;
    }
  }
  for (const Placement& placement : placements) {
    if (std::find(placement.begin(), placement.end(), -1) != placement.end()) return {};
  }
  return placements;
}

bool spreads_evenly(const Placement& placement, int ranks) {
  std::vector<int> held(at(ranks), 0);
  for (const std::int32_t rank : placement) ++held[at(rank)];
  return std::all_of(held.begin(), held.end(), [&](int count) { return count == held.front(); });
}

}  // namespace

void infer_pipelines(Schedule& schedule) {
  // Also bounds the memory below: a table of stages and microbatches is no larger than the rows.
  const bool may_be_complete = at(schedule.stages) * at(schedule.microbatches) <= schedule.actions.size();
  if (schedule.stages == 0 || !may_be_complete || !some_stage_has_two_ranks(schedule)) return;
  const std::vector<Placement> placements = placements_of(schedule);
  std::vector<Placement> pipelines;
  std::vector<int> microbatches;
  std::vector<std::uint8_t> pipeline_of;
  for (const Placement& placement : placements) {
    const auto known = std::find(pipelines.begin(), pipelines.end(), placement);
    const std::size_t pipeline = static_cast<std::size_t>(known - pipelines.begin());
    if (known == pipelines.end()) {
      if (pipelines.size() == kMostPipelines || !spreads_evenly(placement, schedule.ranks)) return;
      pipelines.push_back(placement);
      microbatches.push_back(0);
    }
    ++microbatches[pipeline];
    pipeline_of.push_back(static_cast<std::uint8_t>(pipeline));
  }
  const bool unequal = std::any_of(microbatches.begin(), microbatches.end(),
                                   [&](int count) { return count != microbatches.front(); });
  if (pipelines.size() < 2 || unequal) return;
  schedule.rank_of_stage.clear();
  for (const Placement& placement : pipelines) {
    schedule.rank_of_stage.insert(schedule.rank_of_stage.end(), placement.begin(), placement.end());
  }
  schedule.pipeline_of = std::move(pipeline_of);
}

}  // namespace plumbline::detail
