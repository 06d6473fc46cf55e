#include "engine/schedule/schedule.h"

#include <algorithm>
#include <limits>

#include "engine/base/assert.h"

namespace plumbline {

std::vector<int> Schedule::stages_of_rank(int rank) const {
  std::vector<int> held;
  for (std::size_t at = 0; at < rank_of_stage.size(); ++at) {
    if (rank_of_stage[at] == rank) held.push_back(static_cast<int>(at % static_cast<std::size_t>(stages)));
  }
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  return held;
}

bool Schedule::has_communication() const {
  return std::any_of(actions.begin(), actions.end(),
                     [](const Action& action) { return is_p2p(action.kind); });
}

void Schedule::add_row(std::span<const Action> row) {
  PL_ASSERT(actions.size() + row.size() <= std::numeric_limits<std::uint32_t>::max());
  actions.insert(actions.end(), row.begin(), row.end());
  offsets.push_back(static_cast<std::uint32_t>(actions.size()));
}

std::vector<std::int32_t> loop_placement(int stages, int ranks) {
  PL_ASSERT(stages >= 0 && ranks > 0);
  std::vector<std::int32_t> placement(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) placement[static_cast<std::size_t>(stage)] = stage % ranks;
  return placement;
}

std::vector<std::int32_t> wave_placement(int stages, int ranks) {
  PL_ASSERT(stages >= 0 && ranks > 0 && stages % ranks == 0);
  std::vector<std::int32_t> placement(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    const int along = stage % ranks;
    placement[static_cast<std::size_t>(stage)] = stage / ranks % 2 == 0 ? along : ranks - 1 - along;
  }
  return placement;
}

Dependencies dependencies(const Action& action, int stages, bool forward_only, int slices) {
  Dependencies needs;
  const auto need = [&](ActionKind kind, int stage, int microbatch) {
    needs.on[needs.count++] = Action{microbatch, static_cast<std::uint16_t>(stage), kind, 0};
  };
  const int stage = action.stage;
  const int microbatch = action.microbatch;
  switch (action.kind) {
    case ActionKind::kForward:
      if (stage > 0) need(ActionKind::kForward, stage - 1, microbatch);
      if (microbatch % slices > 0) need(ActionKind::kForward, stage, microbatch - 1);
      break;
    case ActionKind::kBackward:
    case ActionKind::kInputGrad:
      if (forward_only) break;  // such a schedule has no backward, so nothing one could wait for
      need(ActionKind::kForward, stage, microbatch);
      if (stage + 1 < stages) need(ActionKind::kBackward, stage + 1, microbatch);
      if (microbatch % slices + 1 < slices) need(ActionKind::kBackward, stage, microbatch + 1);
      break;
    case ActionKind::kWeightGrad:
      if (!forward_only) need(ActionKind::kInputGrad, stage, microbatch);
      break;
    default:
      break;  // communication is matched by the Program's checks
  }
  return needs;
}

}  // namespace plumbline
