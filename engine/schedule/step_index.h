// StepIndex: where each computation of a schedule stands, as an index into Schedule::actions. Built once, in
// linear time; memory is proportional to the actions, however large the numbers in them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/schedule/schedule.h"

namespace plumbline {

class StepIndex {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // The places of one stage's computations for one microbatch; the first one where something stands twice.
  struct Steps {
    std::array<std::uint32_t, 4> at = {kNone, kNone, kNone, kNone};  // by ActionKind: F, B, I, W

    std::uint32_t of(ActionKind kind) const { return at[static_cast<std::size_t>(kind)]; }
    // Where the gradient that the stage below waits for is made: B, or else I.
    std::uint32_t gradient() const {
      return of(ActionKind::kBackward) != kNone ? of(ActionKind::kBackward) : of(ActionKind::kInputGrad);
    }
  };

  // Actions whose stage or microbatch lies outside the schedule are left out. The schedule is not kept.
  explicit StepIndex(const Schedule& schedule);

  // Null when nothing of this stage and microbatch was seen.
  const Steps* find(int stage, std::int32_t microbatch) const;

  // Where a computation stands that some other one depends on, kBackward meaning B or I; kNone if nowhere.
  std::uint32_t find_dependency(const Action& on) const;

  // Calls visit(microbatch, steps) for everything seen of a stage, microbatches ascending.
  template <typename Visit>
  void for_each(int stage, Visit visit) const {
    const Line& line = lines_[static_cast<std::size_t>(stage)];
    for (std::size_t i = 0; i < line.size; ++i) {
      const Steps& steps = steps_[line.first + i];
      if (seen(steps))
        visit(line.dense ? static_cast<std::int32_t>(i) : sparse_[line.sparse_first + i], steps);
    }
  }

 private:
  // One stage. Dense: one entry a microbatch. Sparse (few actions, large numbers): sorted microbatch numbers
  // beside it.
  struct Line {
    std::size_t first = 0;
    std::size_t size = 0;
    std::size_t sparse_first = 0;
    bool dense = true;
  };

  static bool seen(const Steps& steps) {
    return steps.at != std::array<std::uint32_t, 4>{kNone, kNone, kNone, kNone};
  }
  void lay_out(const Schedule& schedule);
  std::size_t entry(int stage, std::int32_t microbatch) const;  // index into steps_, or steps_.size()

  std::vector<Line> lines_;
  std::vector<Steps> steps_;
  std::vector<std::int32_t> sparse_;
};

// Inside the schedule's stages and microbatches?
bool in_range(const Action& action, const Schedule& schedule);

}  // namespace plumbline
