// Structure rules that look at one action, or at all actions of one stage and microbatch. Order is
// order_check.cc's.
#include <algorithm>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/schedule/comm_check.h"
#include "engine/schedule/order_check.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/step_index.h"

namespace plumbline {
namespace {

// What one stage lacks for one microbatch.
enum Lack : unsigned { kLacksForward = 1, kLacksBackward = 2, kLacksInputGrad = 4, kLacksWeightGrad = 8 };

std::string lack_text(unsigned lack) {
  std::string out;
  const auto add = [&](Lack bit, const char* text) {
    if ((lack & bit) != 0) out += (out.empty() ? "" : " and ") + std::string(text);
  };
  add(kLacksForward, "F");
  add(kLacksBackward, "B (or I and W)");
  add(kLacksInputGrad, "I (it has W)");
  add(kLacksWeightGrad, "W (it has I)");
  return out;
}

class Validator {
 public:
  Validator(const Schedule& schedule, bool fragment)
      : schedule_(schedule), fragment_(fragment), index_(schedule) {}

  std::vector<ScheduleFinding> run() {
    for_each_action(
        [&](const Action& action, int rank, int position) { check_range(action, rank, position); });
    check_holders();
    for_each_action(
        [&](const Action& action, int rank, int position) { check_holder(action, rank, position); });
    for_each_action(
        [&](const Action& action, int rank, int position) { check_pair(action, rank, position); });
    std::vector<ScheduleFinding> order;
    detail::check_order(schedule_, index_, &order);
    take(&order, "pair");
    for_each_action(
        [&](const Action& action, int rank, int position) { check_duplicate(action, rank, position); });
    if (!fragment_) check_missing();
    take(&order, "order");
    take(&order, "cycle");
    detail::check_transfers(schedule_, index_, fragment_, &findings_);
    detail::check_reductions(schedule_, fragment_, &findings_);
    detail::check_sharding(schedule_, fragment_, &findings_);
    std::vector<ScheduleFinding> channels = check_channels(schedule_, ChannelScope::kDirection);
    take(&channels, "channel");
    return std::move(findings_);
  }

 private:
  template <typename Visit>
  void for_each_action(Visit visit) const {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const std::span<const Action> row = schedule_.row(rank);
      for (std::size_t i = 0; i < row.size(); ++i) visit(row[i], rank, static_cast<int>(i));
    }
  }

  void add(const char* rule, int rank, int position, std::string why) {
    findings_.push_back(ScheduleFinding{rule, std::move(why), rank, position});
  }

  void take(std::vector<ScheduleFinding>* from, std::string_view rule) {
    for (ScheduleFinding& finding : *from) {
      if (finding.rule == rule) findings_.push_back(std::move(finding));
    }
  }

  void check_range(const Action& action, int rank, int position) {
    if (!in_range(action, schedule_)) {
      add("range", rank, position,
          fmt::format("{} on rank {} is outside the schedule's {} stages and {} microbatches",
                      print_action(action), rank, schedule_.stages, schedule_.microbatches));
      return;
    }
    const bool backward =
        (takes_microbatch(action.kind) && action.kind != ActionKind::kForward &&
         action.kind != ActionKind::kSendForward && action.kind != ActionKind::kRecvForward);
    if (schedule_.forward_only && backward) {
      add("range", rank, position,
          fmt::format("{} on rank {} belongs to a backward, but the schedule is forward only",
                      print_action(action), rank));
    }
    if (fragment_) return;  // the neighbour may be in another part
    const bool to_next = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
    const bool to_previous =
        action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kSendBackward;
    if ((to_next && action.stage + 1 == schedule_.stages) || (to_previous && action.stage == 0)) {
      add("range", rank, position,
          fmt::format("{} on rank {} has no partner: stage {} is the {} stage", print_action(action), rank,
                      action.stage, to_next ? "last" : "first"));
    }
  }

  // Stages without a rank, or on a rank that does not exist.
  void check_holders() {
    for (std::size_t at = 0; at < schedule_.rank_of_stage.size(); ++at) {
      const std::size_t stage = at % static_cast<std::size_t>(schedule_.stages);
      const std::int32_t holder = schedule_.rank_of_stage[at];
      if (holder >= 0 && holder < schedule_.ranks) continue;
      if (holder == -1 && fragment_) continue;
      add("placement", 0, 0,
          holder == -1 ? fmt::format("no rank holds stage {}", stage)
                       : fmt::format("stage {} is on rank {}, but there are {} ranks", stage, holder,
                                     schedule_.ranks));
    }
  }

  void check_holder(const Action& action, int rank, int position) {
    if (action.stage >= schedule_.stages) return;
    const bool in_pipeline = schedule_.pipeline_of.empty() || in_range(action, schedule_);
    if (!in_pipeline) return;  // which pipeline it would be in is not known; its range is reported
    if (!schedule_.pipeline_of.empty() && !takes_microbatch(action.kind))
      return check_copy(action, rank, position);
    const std::int32_t holder = schedule_.rank_of(action.stage, action.microbatch);
    if (holder == rank || holder < 0 || holder >= schedule_.ranks) return;
    add("placement", rank, position,
        fmt::format("{} is on rank {}, but rank {} holds stage {}{}", print_action(action), rank, holder,
                    action.stage, schedule_.pipeline_of.empty() ? "" : " for this microbatch"));
  }

  // An action on a stage's parameters, where several ranks hold a copy of the stage.
  void check_copy(const Action& action, int rank, int position) {
    for (int pipeline = 0; pipeline < schedule_.pipelines(); ++pipeline) {
      const std::size_t at = static_cast<std::size_t>(pipeline * schedule_.stages + action.stage);
      if (schedule_.rank_of_stage[at] == rank) return;
    }
    add("placement", rank, position,
        fmt::format("{} is on rank {}, which holds no copy of stage {}", print_action(action), rank,
                    action.stage));
  }

  void check_pair(const Action& action, int rank, int position) {
    if (action.paired == 0) return;
    const std::span<const Action> row = schedule_.row(rank);
    const std::size_t next = static_cast<std::size_t>(position) + 1;
    if (next == row.size()) {
      add("pair", rank, position,
          fmt::format("{} is the last action of rank {} and has no second half", print_action(action), rank));
      return;
    }
    const Action& second = row[next];
    const bool compute = is_compute(action.kind) && is_compute(second.kind);
    const bool one_each = (action.kind == ActionKind::kForward) != (second.kind == ActionKind::kForward);
    if (!compute || !one_each || second.paired != 0) {
      add("pair", rank, position,
          fmt::format("{} on rank {} is not one forward overlapped with one B, I or W{}",
                      print_pair(action, second), rank,
                      second.paired != 0 ? ", and its second half begins another pair" : ""));
    }
  }

  void check_duplicate(const Action& action, int rank, int position) {
    if (!is_compute(action.kind) || !in_range(action, schedule_)) return;
    const StepIndex::Steps& steps = *index_.find(action.stage, action.microbatch);
    const std::uint32_t self =
        schedule_.offsets[static_cast<std::size_t>(rank)] + static_cast<std::uint32_t>(position);
    const std::uint32_t first = steps.of(action.kind);
    if (first != self) {
      add("duplicate", rank, position,
          fmt::format("{} on rank {} at position {} is done already, by {}", print_action(action), rank,
                      position, place(first)));
    }
    const bool part = action.kind == ActionKind::kInputGrad || action.kind == ActionKind::kWeightGrad;
    const std::uint32_t whole = steps.of(ActionKind::kBackward);
    if (part && whole != StepIndex::kNone) {
      add("duplicate", rank, position,
          fmt::format(
              "{} on rank {} at position {} repeats a part of {} (B is I and W together), which is {}",
              print_action(action), rank, position, print_action(schedule_.actions[whole]), place(whole)));
    }
  }

  std::string place(std::uint32_t at) const {
    const auto after = std::upper_bound(schedule_.offsets.begin(), schedule_.offsets.end(), at);
    const std::size_t rank = static_cast<std::size_t>(after - schedule_.offsets.begin()) - 1;
    return fmt::format("rank {} at position {}", rank, at - schedule_.offsets[rank]);
  }

  unsigned lack_of(const StepIndex::Steps& steps) const {
    const auto has = [&](ActionKind kind) { return steps.of(kind) != StepIndex::kNone; };
    unsigned lack = has(ActionKind::kForward) ? 0U : kLacksForward;
    if (schedule_.forward_only || has(ActionKind::kBackward)) return lack;
    const bool input = has(ActionKind::kInputGrad);
    const bool weight = has(ActionKind::kWeightGrad);
    if (!input && !weight) lack |= kLacksBackward;
    if (!input && weight) lack |= kLacksInputGrad;
    if (input && !weight) lack |= kLacksWeightGrad;
    return lack;
  }

  void check_missing() {
    const unsigned everything = kLacksForward | (schedule_.forward_only ? 0U : kLacksBackward);
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      if (schedule_.rank_of_stage[static_cast<std::size_t>(stage)] < 0) continue;  // reported as a whole
      run_first_ = 0;
      run_lack_ = 0;
      std::int32_t next = 0;  // microbatches below it are counted
      index_.for_each(stage, [&](std::int32_t microbatch, const StepIndex::Steps& steps) {
        if (microbatch > next) extend_run(stage, next, everything);
        extend_run(stage, microbatch, lack_of(steps));
        next = microbatch + 1;
      });
      if (next < schedule_.microbatches) extend_run(stage, next, everything);
      extend_run(stage, schedule_.microbatches, 0);
    }
  }

  // From `microbatch` on the stage lacks `lack`; a change ends the run before it, which is one finding.
  void extend_run(int stage, std::int32_t microbatch, unsigned lack) {
    if (lack == run_lack_) return;
    if (run_lack_ != 0) {
      const int last = microbatch - 1;
      const std::int32_t rank = schedule_.rank_of_stage[static_cast<std::size_t>(stage)];
      const std::string which = run_first_ == last ? fmt::format("microbatch {}", last)
                                                   : fmt::format("microbatches {} to {}", run_first_, last);
      add("missing", rank, 0,
          fmt::format("stage {} on rank {} lacks {} of {}", stage, rank, lack_text(run_lack_), which));
    }
    run_first_ = microbatch;
    run_lack_ = lack;
  }

  const Schedule& schedule_;
  const bool fragment_;
  const StepIndex index_;
  std::vector<ScheduleFinding> findings_;
  std::int32_t run_first_ = 0;
  unsigned run_lack_ = 0;
};

}  // namespace

std::vector<ScheduleFinding> validate_schedule(const Schedule& schedule, bool fragment) {
  PL_ASSERT(schedule.ranks >= 0 && schedule.stages >= 0 && schedule.microbatches >= 0);
  PL_ASSERT(schedule.offsets.size() == static_cast<std::size_t>(schedule.ranks) + 1);
  PL_ASSERT(schedule.offsets.front() == 0 && schedule.offsets.back() == schedule.actions.size());
  PL_ASSERT(std::is_sorted(schedule.offsets.begin(), schedule.offsets.end()));
  const std::size_t stages = static_cast<std::size_t>(schedule.stages);
  PL_ASSERT(schedule.pipeline_of.empty() ? schedule.rank_of_stage.size() == stages
                                         : stages > 0 && schedule.rank_of_stage.size() % stages == 0);
  PL_ASSERT(schedule.pipeline_of.empty() ||
            schedule.pipeline_of.size() == static_cast<std::size_t>(schedule.microbatches));
  PL_ASSERT(std::all_of(schedule.pipeline_of.begin(), schedule.pipeline_of.end(),
                        [&](int pipeline) { return pipeline < schedule.pipelines(); }));
  PL_ASSERT(schedule.slices >= 1 && schedule.microbatches % schedule.slices == 0);
  return Validator(schedule, fragment).run();
}

}  // namespace plumbline
