#include "engine/schedule/communicate.h"

#include <fmt/format.h>

namespace plumbline {
namespace {

class Adder {
 public:
  explicit Adder(const Schedule& schedule)
      : schedule_(schedule),
        done_(static_cast<std::size_t>(schedule.stages) * static_cast<std::size_t>(schedule.microbatches)),
        next_(static_cast<std::size_t>(schedule.ranks)),
        rows_(static_cast<std::size_t>(schedule.ranks)) {}

  Result<Schedule> run() {
    bool progress = true;
    bool left = true;
    while (progress) {
      progress = false;
      left = false;
      for (int rank = 0; rank < schedule_.ranks; ++rank) {
        if (next_[at(rank)] == schedule_.row(rank).size()) continue;
        progress = take(rank) || progress;
        left = left || next_[at(rank)] < schedule_.row(rank).size();
      }
    }
    if (left) return stuck();
    Schedule out = schedule_;
    out.actions.clear();
    out.offsets.assign(1, 0);
    for (const auto& row : rows_) out.add_row(row);
    return out;
  }

 private:
  // What of a (stage, microbatch) has been computed.
  enum Done : std::uint8_t { kForwardDone = 1, kInputGradDone = 2 };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  std::uint8_t& done(int stage, int microbatch) {
    return done_[at(stage) * at(schedule_.microbatches) + at(microbatch)];
  }

  bool ready(const Action& action) {
    const Dependencies needs =
        dependencies(action, schedule_.stages, schedule_.forward_only, schedule_.slices);
    for (int i = 0; i < needs.count; ++i) {
      const bool forward = needs.on[i].kind == ActionKind::kForward;
      if ((done(needs.on[i].stage, needs.on[i].microbatch) & (forward ? kForwardDone : kInputGradDone)) == 0)
        return false;
    }
    return true;
  }

  // Takes the rank's next action, or the two of an overlapped pair, if all inputs exist.
  bool take(int rank) {
    const auto row = schedule_.row(rank);
    std::size_t& next = next_[at(rank)];
    const std::size_t count = row[next].paired != 0 ? 2 : 1;
    for (std::size_t i = 0; i < count; ++i) {
      if (is_compute(row[next + i].kind) && !ready(row[next + i])) return false;
    }
    for (std::size_t i = 0; i < count; ++i) rows_[at(rank)].push_back(row[next + i]);
    for (std::size_t i = 0; i < count; ++i) finish(rank, row[next + i]);
    next += count;
    return true;
  }

  void finish(int rank, const Action& action) {
    const bool forward = action.kind == ActionKind::kForward;
    if (!forward && action.kind != ActionKind::kBackward && action.kind != ActionKind::kInputGrad) return;
    done(action.stage, action.microbatch) |= forward ? kForwardDone : kInputGradDone;
    const int to = forward ? action.stage + 1 : action.stage - 1;
    if (to < 0 || to >= schedule_.stages) return;
    const std::int32_t peer = schedule_.rank_of(to, action.microbatch);
    if (peer < 0 || peer == rank) return;
    Action send = action;
    send.paired = 0;
    send.kind = forward ? ActionKind::kSendForward : ActionKind::kSendBackward;
    Action recv = send;
    recv.stage = static_cast<std::uint16_t>(to);
    recv.kind = forward ? ActionKind::kRecvForward : ActionKind::kRecvBackward;
    rows_[at(rank)].push_back(send);
    rows_[at(peer)].push_back(recv);
  }

  tl::unexpected<Error> stuck() const {
    std::string where;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto row = schedule_.row(rank);
      if (next_[at(rank)] < row.size())
        where += fmt::format("{}rank {} at {}", where.empty() ? "" : ", ", rank,
                             print_action(row[next_[at(rank)]]));
    }
    return fail(
        ErrorCode::kConfig,
        fmt::format("no order of sends and receives exists for {}: {} wait for inputs that never come",
                    schedule_.name, where));
  }

  const Schedule& schedule_;
  std::vector<std::uint8_t> done_;  // [stage][microbatch]
  std::vector<std::size_t> next_;
  std::vector<std::vector<Action>> rows_;
};

}  // namespace

Result<Schedule> add_communication(const Schedule& schedule) { return Adder(schedule).run(); }

}  // namespace plumbline
