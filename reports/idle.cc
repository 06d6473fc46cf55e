#include "reports/idle.h"

#include <algorithm>

namespace plumbline {
namespace {

struct Busy {
  Nanoseconds begin;
  Nanoseconds end;
};

// The time of one rank inside [begin, end).
class RankClock {
 public:
  RankClock(const RunRecord& record, std::span<const std::uint32_t> events, Nanoseconds begin,
            Nanoseconds end)
      : record_(record), begin_(begin), end_(end) {
    for (const std::uint32_t i : events) {
      const RunEvent& e = record.events[i];
      const WorkKind kind = work_kind(record.labels[e.label]);
      if (is_communication(kind)) {
        communication_.push_back(i);
      } else if (e.start < end) {
        add_busy(e, is_pipeline(kind));
      }
    }
    // What released the rank is looked for from the latest end backwards; in a group that ended as a whole,
    // the operation that became ready last was the one waited for.
    std::stable_sort(communication_.begin(), communication_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const RunEvent& x = record_.events[a];
      const RunEvent& y = record_.events[b];
      return x.end != y.end ? x.end < y.end : x.ready < y.ready;
    });
  }

  RankTime run() {
    if (!seen_) time_.first = time_.last = begin_;
    Nanoseconds at = begin_;
    for (const Busy& busy : busy_) {
      if (busy.begin > at) gap(at, busy.begin);
      at = std::max(at, busy.end);
    }
    if (at < end_) gap(at, end_);
    return time_;
  }

 private:
  void add_busy(const RunEvent& e, bool pipeline) {
    const Nanoseconds begin = busy_.empty() ? e.start : std::max(e.start, busy_.back().end);
    const Nanoseconds end = std::min(e.end, end_);
    if (end > begin) {
      (pipeline ? time_.pipeline : time_.other) += end - begin;
      busy_.push_back({begin, end});
    }
    if (!pipeline) return;
    if (!seen_) time_.first = e.start;
    time_.last = std::max(time_.last, e.end);
    seen_ = true;
  }

  void gap(Nanoseconds from, Nanoseconds to) {
    // A gap may straddle the first start only when nothing of the pipeline ran before it, so places never
    // mix.
    const IdlePlace place = !seen_ || to <= time_.first ? IdlePlace::kFill
                            : from >= time_.last        ? IdlePlace::kDrain
                                                        : IdlePlace::kInternal;
    time_.place[static_cast<std::size_t>(place)] += to - from;
    explain(from, to);
  }

  void explain(Nanoseconds from, Nanoseconds to) {
    const auto past =
        std::upper_bound(communication_.begin(), communication_.end(), to,
                         [&](Nanoseconds t, std::uint32_t i) { return t < record_.events[i].end; });
    Nanoseconds at = to;
    // At the end of the window nothing ended yet: what is still running is what the rank waits for.
    if (to == end_) {
      for (auto next = past; next != communication_.end() && at == to; ++next) {
        if (record_.events[*next].start < to) at = charge(record_.events[*next], from, to);
      }
    }
    for (auto next = past; next != communication_.begin() && at > from;) {
      const RunEvent& e = record_.events[*--next];
      if (e.end <= from) break;
      if (e.end > at || e.start >= at) continue;
      add(IdleCause::kHost, at - e.end);
      at = charge(e, from, e.end);
    }
    add(IdleCause::kHost, at - from);
  }

  // Charges [max(from, start), to) to an operation and returns where it began.
  Nanoseconds charge(const RunEvent& e, Nanoseconds from, Nanoseconds to) {
    const Nanoseconds begin = std::max(from, e.start);
    const Nanoseconds ready = std::clamp(e.ready, begin, to);
    const WorkKind kind = work_kind(record_.labels[e.label]);
    add(kind == WorkKind::kRecv   ? IdleCause::kRecv
        : kind == WorkKind::kSend ? IdleCause::kSend
                                  : IdleCause::kCollective,
        ready - begin);
    add(IdleCause::kTransfer, to - ready);
    return begin;
  }

  void add(IdleCause cause, Nanoseconds time) { time_.cause[static_cast<std::size_t>(cause)] += time; }

  const RunRecord& record_;
  Nanoseconds begin_;
  Nanoseconds end_;
  std::vector<Busy> busy_;
  std::vector<std::uint32_t> communication_;
  RankTime time_;
  bool seen_ = false;
};

double ratio(Nanoseconds part, Nanoseconds whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

void add_to_total(const RankTime& rank, bool first_rank, RankTime& total) {
  total.pipeline += rank.pipeline;
  total.other += rank.other;
  total.first = first_rank ? rank.first : std::min(total.first, rank.first);
  total.last = first_rank ? rank.last : std::max(total.last, rank.last);
  for (std::size_t k = 0; k < kIdlePlaces; ++k) total.place[k] += rank.place[k];
  for (std::size_t k = 0; k < kIdleCauses; ++k) total.cause[k] += rank.cause[k];
}

}  // namespace

std::string_view idle_place_name(IdlePlace place) {
  constexpr std::string_view kNames[kIdlePlaces] = {"fill", "internal", "drain"};
  return kNames[static_cast<std::size_t>(place)];
}

std::string_view idle_cause_name(IdleCause cause) {
  constexpr std::string_view kNames[kIdleCauses] = {"waiting-on-recv", "waiting-on-send",
                                                    "waiting-on-collective", "transfer", "host"};
  return kNames[static_cast<std::size_t>(cause)];
}

StepTime step_time(const RunRecord& record, const StepEvents& step) {
  StepTime time;
  time.step = step.step;
  time.evaluation = step.evaluation;
  time.begin = step.begin;
  time.step_time = step.end - step.begin;
  Nanoseconds end = step.begin;
  for (const std::uint32_t i : step.index) {
    const RunEvent& e = record.events[i];
    if (is_pipeline(work_kind(record.labels[e.label]))) end = std::max(end, e.end);
  }
  time.window = end - step.begin;
  for (Rank rank = 0; rank < record.ranks; ++rank) {
    time.ranks.push_back(RankClock(record, step.of_rank(rank), step.begin, end).run());
    add_to_total(time.ranks.back(), rank == 0, time.total);
    if (time.ranks.back().stage_time() > time.ranks[static_cast<std::size_t>(time.longest)].stage_time()) {
      time.longest = rank;
    }
  }
  return time;
}

double StepTime::bubble_makespan(int rank) const {
  return ratio(ranks[static_cast<std::size_t>(rank)].idle(), window);
}

double StepTime::bubble_stage_time(int rank) const {
  const RankTime& r = ranks[static_cast<std::size_t>(rank)];
  return ratio(r.internal(), r.stage_time());
}

double StepTime::bubble_makespan() const {
  return ratio(total.idle(), window * static_cast<Nanoseconds>(ranks.size()));
}

}  // namespace plumbline
