// Critical path and slack of a step, through computations, messages, collectives and stream order.
#pragma once

#include <cstdint>
#include <vector>

#include "reports/event_kind.h"
#include "reports/event_links.h"

namespace plumbline {

// The chain of causes that ends in the step's last event: shorten nothing on it and the step gets no shorter.
struct CriticalPath {
  std::vector<std::uint32_t> events;  // in time order
  Nanoseconds by_kind[kWorkKinds] =
      {};                       // time on the path by kind; for messages and collectives the transfer alone
  Nanoseconds unexplained = 0;  // time on the path when nothing on it ran (host time, clock differences)
  Nanoseconds total = 0;        // = the sum of the above: last end minus the step's begin
};
CriticalPath critical_path(const RunRecord& record, const StepEvents& step, const EventLinks& links);

constexpr Nanoseconds kUnknownSlack = -1;

// For every event of the record: by how much its end may slip before its step ends later, everything else as
// it was. Events in a cycle of equal times, and those that cannot be drawn, keep kUnknownSlack.
std::vector<Nanoseconds> slack_of_events(const RunRecord& record, const std::vector<StepEvents>& steps,
                                         const EventLinks& links);

}  // namespace plumbline
