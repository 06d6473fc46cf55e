// An independent, slow and simple view of schedules for the tests: what is valid, how long it takes, what it
// holds. Written from the rules, not from the code under test.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/schedule/csv.h"
#include "engine/schedule/generator.h"
#include "engine/schedule/schedule.h"

namespace plumbline::test {

using Rows = std::vector<std::vector<Action>>;

inline Rows rows_of(const Schedule& schedule) {
  Rows rows;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::span<const Action> row = schedule.row(rank);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

// The same schedule with other rows.
inline Schedule with_rows(const Schedule& like, const Rows& rows) {
  Schedule out = like;
  out.actions.clear();
  out.offsets = {0};
  for (const std::vector<Action>& row : rows) out.add_row(row);
  return out;
}

using Step = std::tuple<ActionKind, int, int>;  // kind, stage, microbatch

// Every stage and microbatch has its F and its B, or I and W, once and on the right rank. Computations only,
// no pairs.
inline bool complete(const Schedule& schedule) {
  std::map<Step, int> count;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.row(rank)) {
      if (action.stage >= schedule.stages || schedule.rank_of_stage[action.stage] != rank) return false;
      if (action.microbatch < 0 || action.microbatch >= schedule.microbatches) return false;
      ++count[{action.kind, action.stage, action.microbatch}];
    }
  }
  for (int s = 0; s < schedule.stages; ++s) {
    for (int m = 0; m < schedule.microbatches; ++m) {
      const int f = count[{ActionKind::kForward, s, m}];
      const int b = count[{ActionKind::kBackward, s, m}];
      const int i = count[{ActionKind::kInputGrad, s, m}];
      const int w = count[{ActionKind::kWeightGrad, s, m}];
      const bool backward = (b == 1 && i == 0 && w == 0) || (b == 0 && i == 1 && w == 1);
      const bool none = b == 0 && i == 0 && w == 0;
      if (f != 1 || !(schedule.forward_only ? none : backward)) return false;
    }
  }
  return true;
}

struct Costs {
  int forward = 1;
  int backward = 1;
  int input_grad = 1;
  int weight_grad = 1;

  int of(ActionKind kind) const {
    if (kind == ActionKind::kForward) return forward;
    if (kind == ActionKind::kBackward) return backward;
    return kind == ActionKind::kInputGrad ? input_grad : weight_grad;
  }
};

// Runs the schedule by trying every rank again and again. Makespan, or -1 if it stops before the end.
inline int makespan(const Schedule& schedule, const Costs& costs) {
  std::map<Step, int> end;
  std::vector<std::size_t> head(static_cast<std::size_t>(schedule.ranks), 0);
  std::vector<int> free_at(head.size(), 0);
  const auto end_of = [&](ActionKind kind, int stage, int microbatch) {
    const auto at = end.find({kind, stage, microbatch});
    return at == end.end() ? -1 : at->second;
  };
  const auto start_of = [&](const Action& a) {
    if (a.kind == ActionKind::kForward)
      return a.stage == 0 ? 0 : end_of(ActionKind::kForward, a.stage - 1, a.microbatch);
    if (a.kind == ActionKind::kWeightGrad) return end_of(ActionKind::kInputGrad, a.stage, a.microbatch);
    const int own = end_of(ActionKind::kForward, a.stage, a.microbatch);
    if (a.stage + 1 == schedule.stages) return own;
    const int next = std::max(end_of(ActionKind::kBackward, a.stage + 1, a.microbatch),
                              end_of(ActionKind::kInputGrad, a.stage + 1, a.microbatch));
    return own < 0 || next < 0 ? -1 : std::max(own, next);
  };
  int last = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const std::size_t r = static_cast<std::size_t>(rank);
      const std::span<const Action> row = schedule.row(rank);
      for (; head[r] < row.size(); ++head[r]) {
        const Action& action = row[head[r]];
        const int start = start_of(action);
        if (start < 0) break;
        free_at[r] = std::max(free_at[r], start) + costs.of(action.kind);
        end[{action.kind, action.stage, action.microbatch}] = free_at[r];
        last = std::max(last, free_at[r]);
        progress = true;
      }
    }
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (head[static_cast<std::size_t>(rank)] < schedule.row(rank).size()) return -1;
  }
  return last;
}

// Largest number of forwards whose backward has not run yet, in the rank's order.
inline int peak_live(const Schedule& schedule, int rank) {
  int live = 0;
  int peak = 0;
  for (const Action& action : schedule.row(rank)) {
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++live);
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGrad) --live;
  }
  return peak;
}

// Most that a rank holds when F takes `held`, I gives back `freed_early` of it and W, or B, the rest; in
// the rank's order.
inline std::int64_t peak_held(const Schedule& schedule, int rank, const ActivationModel& model) {
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const Action& action : schedule.row(rank)) {
    const std::int64_t held = entry_of(model.held, action.stage);
    const std::int64_t early = entry_of(model.freed_early, action.stage);
    if (action.kind == ActionKind::kForward) live += held;
    if (action.kind == ActionKind::kInputGrad) live -= early;
    if (action.kind == ActionKind::kWeightGrad) live -= held - early;
    if (action.kind == ActionKind::kBackward) live -= held;
    peak = std::max(peak, live);
  }
  return peak;
}

inline bool valid(const Schedule& schedule) { return complete(schedule) && makespan(schedule, Costs{}) >= 0; }

inline Result<Schedule> generate(std::string_view name, const GeneratorArgs& args) {
  const Result<const Generator*> generator = find_generator(name);
  if (!generator) return tl::unexpected(generator.error());
  return (*generator)->make(args);
}

inline std::string findings_text(const std::vector<ScheduleFinding>& findings) {
  std::string out;
  for (const ScheduleFinding& finding : findings) out += finding.rule + ": " + finding.why + "\n";
  return out;
}

}  // namespace plumbline::test
