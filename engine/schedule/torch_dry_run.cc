// torch's dry run of rows with communication: unit time, one action a rank and step.
#include <algorithm>

#include <fmt/format.h>

#include "engine/schedule/torch_passes.h"

namespace plumbline {
namespace {

class Runner {
 public:
  explicit Runner(const Schedule& schedule) : schedule_(schedule), rows_(at(schedule.ranks)) {
    done_.resize(at(schedule.stages) * at(schedule.microbatches));
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      for (Action action : schedule.row(rank)) {
        action.paired = 0;
        if (takes_microbatch(action.kind)) rows_[at(rank)].todo.push_back(action);
      }
    }
  }

  Result<DryRun> run() {
    while (std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return !row.finished(); })) {
      bool progress = false;
      for (Row& row : rows_) {
        if (row.finished()) continue;
        row.idle = !ready(row.head());
        if (row.idle) {
          row.waits.push_back(static_cast<std::uint32_t>(row.next));
        } else {
          take(row);
          progress = true;
        }
      }
      // A rank that waited may go on in the same step if a later rank made that possible.
      for (Row& row : rows_) {
        if (row.finished() || !row.idle || !ready(row.head())) continue;
        row.waits.pop_back();
        take(row);
      }
      if (!progress) return stuck();
    }
    return result();
  }

 private:
  struct Row {
    std::vector<Action> todo;
    std::size_t next = 0;
    std::vector<std::uint32_t> waits;
    bool idle = false;  // the last step

    bool finished() const { return next == todo.size(); }
    const Action& head() const { return todo[next]; }
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  bool in_range(int stage, int microbatch) const {
    return stage >= 0 && stage < schedule_.stages && microbatch >= 0 && microbatch < schedule_.microbatches;
  }
  std::uint16_t* done(int stage, int microbatch) {
    return &done_[at(stage) * at(schedule_.microbatches) + at(microbatch)];
  }
  bool was(ActionKind kind, int stage, int microbatch) {
    return in_range(stage, microbatch) && (*done(stage, microbatch) >> static_cast<unsigned>(kind) & 1U) != 0;
  }
  bool gradient(int stage, int microbatch) {
    return was(ActionKind::kInputGrad, stage, microbatch) || was(ActionKind::kBackward, stage, microbatch);
  }
  bool same_rank(int a, int b, int microbatch) const {
    return in_range(a, microbatch) && in_range(b, microbatch) &&
           schedule_.rank_of(a, microbatch) == schedule_.rank_of(b, microbatch);
  }

  bool ready(const Action& action) {
    const int stage = action.stage;
    const int mb = action.microbatch;
    switch (action.kind) {
      case ActionKind::kForward:
        return stage == 0 || was(ActionKind::kRecvForward, stage, mb) ||
               (was(ActionKind::kForward, stage - 1, mb) && same_rank(stage - 1, stage, mb));
      case ActionKind::kBackward:
      case ActionKind::kInputGrad:
        return stage == schedule_.stages - 1 || was(ActionKind::kRecvBackward, stage, mb) ||
               (gradient(stage + 1, mb) && same_rank(stage, stage + 1, mb));
      case ActionKind::kSendForward:
        return was(ActionKind::kForward, stage, mb);
      case ActionKind::kSendBackward:
        return gradient(stage, mb);
      case ActionKind::kRecvForward:
        return was(ActionKind::kSendForward, stage - 1, mb);
      case ActionKind::kRecvBackward:
        return was(ActionKind::kSendBackward, stage + 1, mb);
      default:
        return true;  // W
    }
  }

  void take(Row& row) {
    const Action& action = row.head();
    if (in_range(action.stage, action.microbatch)) {
      *done(action.stage, action.microbatch) |=
          static_cast<std::uint16_t>(1U << static_cast<unsigned>(action.kind));
    }
    ++row.next;
  }

  tl::unexpected<Error> stuck() const {
    std::string where;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const Row& row = rows_[at(rank)];
      if (!row.finished())
        where += fmt::format("{}rank {} at {}", where.empty() ? "" : ", ", rank, print_action(row.head()));
    }
    return fail(ErrorCode::kConfig, fmt::format("the dry run of {} stops: {}", schedule_.name, where));
  }

  DryRun result() const {
    DryRun out;
    out.schedule = schedule_;
    out.schedule.actions.clear();
    out.schedule.offsets.assign(1, 0);
    for (const Row& row : rows_) {
      out.schedule.add_row(row.todo);
      out.idle.before.push_back(row.waits);
      out.steps = std::max(out.steps, static_cast<int>(row.todo.size() + row.waits.size()));
    }
    return out;
  }

  const Schedule& schedule_;
  std::vector<Row> rows_;
  std::vector<std::uint16_t> done_;  // by stage and microbatch: a bit a kind
};

}  // namespace

Result<DryRun> dry_run(const Schedule& schedule) { return Runner(schedule).run(); }

}  // namespace plumbline
