#include "engine/schedule/step_index.h"

#include <algorithm>

namespace plumbline {

bool in_range(const Action& action, const Schedule& schedule) {
  if (action.stage >= schedule.stages) return false;
  if (!takes_microbatch(action.kind)) return true;
  return action.microbatch >= 0 && action.microbatch < schedule.microbatches;
}

StepIndex::StepIndex(const Schedule& schedule) : lines_(static_cast<std::size_t>(schedule.stages)) {
  lay_out(schedule);
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action& action = schedule.actions[i];
    if (!is_compute(action.kind) || !in_range(action, schedule)) continue;
    std::uint32_t& at =
        steps_[entry(action.stage, action.microbatch)].at[static_cast<std::size_t>(action.kind)];
    if (at == kNone) at = static_cast<std::uint32_t>(i);
  }
}

// A stage with n computations gets one entry a microbatch up to its largest one, unless that number is out of
// proportion to n: then its microbatches are sorted and searched. Real schedules never take the second way.
void StepIndex::lay_out(const Schedule& schedule) {
  std::vector<std::size_t> count(lines_.size(), 0);
  for (const Action& action : schedule.actions) {
    if (!is_compute(action.kind) || !in_range(action, schedule)) continue;
    const std::size_t stage = action.stage;
    ++count[stage];
    lines_[stage].size = std::max(lines_[stage].size, static_cast<std::size_t>(action.microbatch) + 1);
  }
  bool any_sparse = false;
  for (std::size_t stage = 0; stage < lines_.size(); ++stage) {
    lines_[stage].dense = lines_[stage].size <= 64 + 4 * count[stage];
    any_sparse = any_sparse || !lines_[stage].dense;
  }
  std::vector<std::vector<std::int32_t>> numbers(any_sparse ? lines_.size() : 0);
  if (any_sparse) {
    for (const Action& action : schedule.actions) {
      if (!is_compute(action.kind) || !in_range(action, schedule)) continue;
      if (!lines_[action.stage].dense) numbers[action.stage].push_back(action.microbatch);
    }
  }
  std::size_t total = 0;
  for (std::size_t stage = 0; stage < lines_.size(); ++stage) {
    Line& line = lines_[stage];
    if (!line.dense) {
      std::vector<std::int32_t>& sorted = numbers[stage];
      std::sort(sorted.begin(), sorted.end());
      sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
      line.size = sorted.size();
      line.sparse_first = sparse_.size();
      sparse_.insert(sparse_.end(), sorted.begin(), sorted.end());
    }
    line.first = total;
    total += line.size;
  }
  steps_.resize(total);
}

std::size_t StepIndex::entry(int stage, std::int32_t microbatch) const {
  const Line& line = lines_[static_cast<std::size_t>(stage)];
  if (line.dense) {
    const std::size_t offset = static_cast<std::size_t>(microbatch);
    return offset < line.size ? line.first + offset : steps_.size();
  }
  const auto begin = sparse_.begin() + static_cast<std::ptrdiff_t>(line.sparse_first);
  const auto end = begin + static_cast<std::ptrdiff_t>(line.size);
  const auto at = std::lower_bound(begin, end, microbatch);
  return at != end && *at == microbatch ? line.first + static_cast<std::size_t>(at - begin) : steps_.size();
}

const StepIndex::Steps* StepIndex::find(int stage, std::int32_t microbatch) const {
  if (stage < 0 || microbatch < 0 || static_cast<std::size_t>(stage) >= lines_.size()) return nullptr;
  const std::size_t at = entry(stage, microbatch);
  return at < steps_.size() && seen(steps_[at]) ? &steps_[at] : nullptr;
}

std::uint32_t StepIndex::find_dependency(const Action& on) const {
  const Steps* steps = find(on.stage, on.microbatch);
  if (steps == nullptr) return kNone;
  return on.kind == ActionKind::kBackward ? steps->gradient() : steps->of(on.kind);
}

}  // namespace plumbline
