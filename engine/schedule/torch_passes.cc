#include "engine/schedule/torch_passes.h"

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

Schedule without_rows(const Schedule& schedule) {
  Schedule out = schedule;
  out.actions.clear();
  out.offsets.assign(1, 0);
  return out;
}

}  // namespace

Schedule add_reductions(const Schedule& schedule) {
  const auto ends_stage = [](const Action& action) {
    return action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGrad;
  };
  Schedule out = without_rows(schedule);
  std::vector<std::size_t> last(at(schedule.stages));  // by stage: one past its last W or B in this row
  std::vector<Action> row;
  std::vector<Action> due;  // after the pair
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::span<const Action> given = schedule.row(rank);
    for (std::size_t i = 0; i < given.size(); ++i)
      if (ends_stage(given[i])) last[given[i].stage] = i + 1;
    row.clear();
    for (std::size_t i = 0; i < given.size(); ++i) {
      row.push_back(given[i]);
      if (ends_stage(given[i]) && last[given[i].stage] == i + 1)
        due.push_back(Action{-1, given[i].stage, ActionKind::kReduceGrad, 0});
      if (given[i].paired != 0) continue;
      row.insert(row.end(), due.begin(), due.end());
      due.clear();
    }
    out.add_row(row);
  }
  return out;
}

Schedule merge_backwards(const Schedule& schedule) {
  Schedule out = without_rows(schedule);
  std::vector<Action> merged;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::span<const Action> row = schedule.row(rank);
    merged.clear();
    for (std::size_t i = 0; i < row.size(); ++i) {
      merged.push_back(row[i]);
      if (row[i].paired != 0) {
        merged.push_back(row[++i]);
        continue;
      }
      if (row[i].kind != ActionKind::kInputGrad || i + 1 == row.size()) continue;
      const Action& next = row[i + 1];
      const bool mates = next.kind == ActionKind::kWeightGrad && next.stage == row[i].stage &&
                         next.microbatch == row[i].microbatch && next.paired == 0;
      if (!mates) continue;
      merged.back().kind = ActionKind::kBackward;
      ++i;
    }
    out.add_row(merged);
  }
  return out;
}

}  // namespace plumbline
