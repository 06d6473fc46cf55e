// Order over all ranks is decided by running the schedule without time: every rank goes through its row until
// it needs a computation that is not done, and then waits on that computation's list. Finishing a computation
// wakes its list. Each action is looked at once, and once more for every time its rank waited there (at most
// six: three needs, two halves), so the run is linear. If ranks are left waiting, each waits for something
// that stands at or behind the head of another waiting rank; following these steps must come back to a rank
// already met, and that loop is the cycle reported.
#include "engine/schedule/order_check.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline::detail {
namespace {

class OrderCheck {
 public:
  OrderCheck(const Schedule& schedule, const StepIndex& index, std::vector<ScheduleFinding>* findings)
      : schedule_(schedule), index_(index), findings_(findings) {}

  void check_rows() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const std::uint32_t begin = schedule_.offsets[static_cast<std::size_t>(rank)];
      const std::uint32_t end = schedule_.offsets[static_cast<std::size_t>(rank) + 1];
      for (std::uint32_t at = begin; at < end; ++at) check_action(rank, begin, end, at);
    }
  }

  void check_world() {
    const std::size_t ranks = static_cast<std::size_t>(schedule_.ranks);
    head_.assign(schedule_.offsets.begin(), schedule_.offsets.end() - 1);
    waits_for_.assign(ranks, StepIndex::kNone);
    next_waiter_.assign(ranks, -1);
    first_waiter_.assign(schedule_.actions.size(), -1);
    done_.assign(schedule_.actions.size(), false);
    for (int rank = schedule_.ranks - 1; rank >= 0; --rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      advance(rank);
    }
    report_cycles();
  }

 private:
  std::uint32_t begin_of(int rank) const { return schedule_.offsets[static_cast<std::size_t>(rank)]; }
  std::uint32_t end_of(int rank) const { return schedule_.offsets[static_cast<std::size_t>(rank) + 1]; }
  std::string show(std::uint32_t at) const { return print_action(schedule_.actions[at]); }

  bool starts_pair(std::uint32_t at, std::uint32_t end) const {
    return schedule_.actions[at].paired != 0 && at + 1 < end;
  }

  Dependencies needs_of(std::uint32_t at) const {
    const Action& action = schedule_.actions[at];
    if (!is_compute(action.kind) || !in_range(action, schedule_)) return {};
    return dependencies(action, schedule_.stages, schedule_.forward_only, schedule_.slices);
  }

  void check_action(int rank, std::uint32_t begin, std::uint32_t end, std::uint32_t at) {
    const Dependencies needs = needs_of(at);
    for (int i = 0; i < needs.count; ++i) {
      const std::uint32_t on = index_.find_dependency(needs.on[i]);
      if (on == StepIndex::kNone || on < begin || on >= end) continue;
      const bool halves = (on + 1 == at && starts_pair(on, end)) || (at + 1 == on && starts_pair(at, end));
      if (halves) {
        findings_->push_back(
            {"pair",
             fmt::format("{} and {} on rank {} run as one overlapped pair, but {} needs {} done before",
                         show(std::min(at, on)), show(std::max(at, on)), rank, show(at), show(on)),
             rank, static_cast<int>(at - begin)});
      } else if (on > at) {
        findings_->push_back(
            {"order",
             fmt::format("{} (rank {}, position {}) needs {}, which stands behind it at position {}",
                         show(at), rank, at - begin, show(on), on - begin),
             rank, static_cast<int>(at - begin)});
      }
    }
  }

  // What the action waits for right now, kNone if nothing. Faults inside one row have findings of their own,
  // and count as done here; so does what nobody does.
  std::uint32_t unmet(int rank, std::uint32_t at) const {
    const Dependencies needs = needs_of(at);
    for (int i = 0; i < needs.count; ++i) {
      const std::uint32_t on = index_.find_dependency(needs.on[i]);
      if (on == StepIndex::kNone || done_[on]) continue;
      const bool own_row = on >= begin_of(rank) && on < end_of(rank);
      if (!own_row) return on;
    }
    return StepIndex::kNone;
  }

  void advance(int rank) {
    const std::size_t r = static_cast<std::size_t>(rank);
    const std::uint32_t end = end_of(rank);
    while (head_[r] < end) {
      const std::uint32_t at = head_[r];
      const std::uint32_t size = starts_pair(at, end) ? 2 : 1;
      std::uint32_t wait = unmet(rank, at);
      if (wait == StepIndex::kNone && size == 2) wait = unmet(rank, at + 1);
      if (wait != StepIndex::kNone) {
        waits_for_[r] = wait;
        next_waiter_[r] = first_waiter_[wait];
        first_waiter_[wait] = rank;
        return;
      }
      waits_for_[r] = StepIndex::kNone;
      for (std::uint32_t i = at; i < at + size; ++i) finish(i);
      head_[r] = at + size;
    }
  }

  void finish(std::uint32_t at) {
    done_[at] = true;
    for (int waiter = first_waiter_[at]; waiter >= 0;
         waiter = next_waiter_[static_cast<std::size_t>(waiter)]) {
      ready_.push_back(waiter);
    }
    first_waiter_[at] = -1;
  }

  void report_cycles() {
    std::vector<int> trail_of(static_cast<std::size_t>(schedule_.ranks),
                              -1);  // which walk met the rank first
    for (int start = 0; start < schedule_.ranks; ++start) {
      int rank = start;
      while (stuck(rank) && trail_of[static_cast<std::size_t>(rank)] < 0) {
        trail_of[static_cast<std::size_t>(rank)] = start;
        rank = holder_of(waits_for_[static_cast<std::size_t>(rank)]);
      }
      if (stuck(rank) && trail_of[static_cast<std::size_t>(rank)] == start) report_cycle(rank);
    }
  }

  bool stuck(int rank) const { return head_[static_cast<std::size_t>(rank)] < end_of(rank); }

  int holder_of(std::uint32_t at) const {
    const auto after = std::upper_bound(schedule_.offsets.begin(), schedule_.offsets.end(), at);
    return static_cast<int>(after - schedule_.offsets.begin()) - 1;
  }

  void report_cycle(int start) {
    std::string chain;
    int rank = start;
    do {
      const std::size_t r = static_cast<std::size_t>(rank);
      const std::uint32_t wait = waits_for_[r];
      const int next = holder_of(wait);
      const std::uint32_t next_head = head_[static_cast<std::size_t>(next)];
      chain += fmt::format("{}{}:{} waits for {}:{}", chain.empty() ? "" : "; ", rank, show(head_[r]), next,
                           show(wait));
      if (next_head != wait) chain += fmt::format(", which stands behind {}:{}", next, show(next_head));
      rank = next;
    } while (rank != start);
    findings_->push_back({"cycle", fmt::format("ranks wait for each other (rank:action): {}", chain), start,
                          static_cast<int>(head_[static_cast<std::size_t>(start)] - begin_of(start))});
  }

  const Schedule& schedule_;
  const StepIndex& index_;
  std::vector<ScheduleFinding>* findings_;
  std::vector<std::uint32_t> head_;         // per rank: the action it stands at
  std::vector<std::uint32_t> waits_for_;    // per rank: the action it waits for
  std::vector<std::int32_t> next_waiter_;   // per rank: the next one waiting for the same action
  std::vector<std::int32_t> first_waiter_;  // per action: a rank that waits for it
  std::vector<bool> done_;                  // per action
  std::vector<int> ready_;                  // ranks to advance
};

}  // namespace

void check_order(const Schedule& schedule, const StepIndex& index, std::vector<ScheduleFinding>* findings) {
  OrderCheck check(schedule, index, findings);
  check.check_rows();
  check.check_world();
}

}  // namespace plumbline::detail
