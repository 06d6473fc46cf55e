// Which stages' parameters are gathered when: torch's window of the next few stages.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "engine/schedule/python_set.h"
#include "engine/schedule/torch_passes.h"

namespace plumbline {
namespace {

// The stages that a rank's row needs next, most urgent first, seen from each of its cells. Walks the row from its
// end: a cell's stages move to the front.
class Windows {
 public:
  Windows(std::span<const Action> row, int active) : active_(static_cast<std::size_t>(active)) {
    std::size_t end = row.size();
    while (end > 0) {
      const std::size_t begin = end - (end > 1 && row[end - 2].paired != 0 ? 2 : 1);
      for (std::size_t i = end; i > begin; --i) touch(row[i - 1].stage, begin);
      append();
      end = begin;
    }
  }

  // Of the cells from the row's begin on, one after another.
  std::span<const int> next() {
    const std::size_t end = ends_.back();
    ends_.pop_back();
    const std::size_t begin = ends_.empty() ? 0 : ends_.back();
    return std::span<const int>(stages_).subspan(begin, end - begin);
  }

 private:
  struct Need {
    int stage;
    std::size_t cell;  // that needs it first
  };

  void touch(int stage, std::size_t cell) {
    const auto known =
        std::find_if(needs_.begin(), needs_.end(), [&](const Need& need) { return need.stage == stage; });
    if (known != needs_.end()) needs_.erase(known);
    needs_.insert(needs_.begin(), Need{stage, cell});
  }

  void append() {
    std::size_t count = std::min(active_, needs_.size());
    // Both stages of a pair come into the window together.
    if (count < needs_.size() && needs_[count].cell == needs_[count - 1].cell) ++count;
    for (std::size_t i = 0; i < count; ++i) stages_.push_back(needs_[i].stage);
    ends_.push_back(stages_.size());
  }

  std::size_t active_;
  std::vector<Need> needs_;
  std::vector<int> stages_;        // the windows, last cell's first
  std::vector<std::size_t> ends_;  // of each in stages_
};

class Sharding {
 public:
  explicit Sharding(int active) : active_(active) {}

  const std::vector<Action>& row(std::span<const Action> given) {
    row_.clear();
    Windows windows(given, active_);
    for (std::size_t i = 0; i < given.size(); ++i) {
      const std::span<const int> window = windows.next();
      for (const int stage : gathered_.values())
        if (std::find(window.begin(), window.end(), stage) == window.end()) drop(stage);
      for (const int stage : window)
        if (!gathered_.has(stage)) gather(stage);
      row_.push_back(given[i]);
      if (given[i].paired != 0) row_.push_back(given[++i]);
    }
    for (const int stage : gathered_.values()) drop(stage);
    gathered_ = PythonSet();
    return row_;
  }

 private:
  void gather(int stage) {
    gathered_.add(stage);
    row_.push_back(Action{-1, static_cast<std::uint16_t>(stage), ActionKind::kUnshard, 0});
  }
  void drop(int stage) {
    gathered_.remove(stage);
    row_.push_back(Action{-1, static_cast<std::uint16_t>(stage), ActionKind::kReshard, 0});
  }

  int active_;
  PythonSet gathered_;
  std::vector<Action> row_;
};

}  // namespace

Result<Schedule> add_sharding(const Schedule& schedule, int active) {
  if (active < 1) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("{} stages to hold gathered parameters; a computation needs its own: set at least 1",
                    active));
  }
  Schedule out = schedule;
  out.actions.clear();
  out.offsets.assign(1, 0);
  Sharding sharding(active);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.row(rank)) {
      if (is_compute(action.kind)) continue;
      return fail(
          ErrorCode::kConfig,
          fmt::format("rank {} has {}; sharding is added to rows of computations; remove the other actions",
                      rank, print_action(action)));
    }
    out.add_row(sharding.row(schedule.row(rank)));
  }
  return out;
}

}  // namespace plumbline
