// What the page's script works on: a RunRecord with its analysis, laid out by lanes. Format: docs/report.md,
// "Data block".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/run_record.h"
#include "reports/analysis.h"

namespace plumbline {

// Events that share a stream without overlapping, in time order. A group's sends and receives run at once on
// one stream, so communication has one lane a direction, and a second one where two overlap.
struct Lane {
  Rank rank = 0;
  int stream = 0;
  std::string kind;                   // "compute", "send", "recv", "collective"
  std::vector<std::uint32_t> events;  // into RunRecord::events
};
// By rank; compute first, then by stream.
std::vector<Lane> page_lanes(const RunRecord& record, const std::vector<std::uint32_t>& events);

// The events to put into the page: whole steps from the first on, while they fit into `most`; where even one
// step does not fit, its lower ranks. `left_out` receives how many drawable events are missing.
std::vector<std::uint32_t> page_events(const Analysis& analysis, const RunRecord& record, std::int64_t most,
                                       std::int64_t* left_out);

// gzip(head + columns), not yet base64.
std::string page_block(const RunRecord& record, const Analysis& analysis, std::int64_t most_events,
                       const std::string& title);

}  // namespace plumbline
