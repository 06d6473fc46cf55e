// Where the time of each rank goes in one step.
//
// Everything is measured over the pipeline window: from the step's begin to the end of its last pipeline
// computation (F, B, I or W) on any rank. What follows - gradient reduction, optimizer - is the tail, and not
// part of a bubble.
//
// Two bubble metrics are in use, and a number means nothing without its name:
//   makespan    idle time of the rank in the window / length of the window
//   stage time  the same between the rank's first start and last end of a pipeline computation; for the whole
//               step, that of the rank with the longest stage time (the zero-bubble papers' metric, where a
//               parallelogram has none)
//
// Idle time is split twice, each time without remainder. By place: fill (before the rank's first
// computation), internal, drain (after its last). By cause: what ended last before the rank went on - waiting
// for the sender, for the receiver (a rendezvous send), for other members of a collective; the transfer
// itself; and what nothing explains (host).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "reports/event_kind.h"
#include "reports/step_events.h"

namespace plumbline {

enum class IdlePlace : std::uint8_t { kFill, kInternal, kDrain };
enum class IdleCause : std::uint8_t { kRecv, kSend, kCollective, kTransfer, kHost };
constexpr int kIdlePlaces = 3;
constexpr int kIdleCauses = 5;
std::string_view idle_place_name(IdlePlace place);
std::string_view idle_cause_name(IdleCause cause);  // "waiting-on-recv", ...

struct RankTime {
  Nanoseconds pipeline = 0;  // F, B, I, W
  Nanoseconds other = 0;     // other kernels inside the window
  Nanoseconds first = 0;     // start of the first pipeline computation
  Nanoseconds last = 0;      // end of the last one
  std::array<Nanoseconds, kIdlePlaces> place{};
  std::array<Nanoseconds, kIdleCauses> cause{};

  Nanoseconds idle() const { return place[0] + place[1] + place[2]; }
  Nanoseconds internal() const { return place[1]; }
  Nanoseconds stage_time() const { return last - first; }
  bool operator==(const RankTime&) const = default;
};

struct StepTime {
  std::int32_t step = 0;
  bool evaluation = false;
  Nanoseconds begin = 0;
  Nanoseconds window = 0;     // makespan of the pipeline: last end minus begin
  Nanoseconds step_time = 0;  // with the tail
  std::vector<RankTime> ranks;
  RankTime total;   // sums; first and last span all ranks
  int longest = 0;  // rank with the longest stage time

  double bubble_makespan(int rank) const;
  double bubble_stage_time(int rank) const;
  double bubble_makespan() const;
  double bubble_stage_time() const { return ranks.empty() ? 0.0 : bubble_stage_time(longest); }
};

StepTime step_time(const RunRecord& record, const StepEvents& step);

}  // namespace plumbline
