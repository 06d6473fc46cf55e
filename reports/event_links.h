// How events hang together: which send met which receive, and for every event what it started after.
// Everything is read off the record; no Program is needed.
//
// The cause of an event is the event that finished last among those it had to wait for:
//   data      F(s,m) after the receive of activation (s,m), or after F(s-1,m) on the same rank; B and I after
//             F(s,m) and after gradient (s+1,m); W after I; a send after the computation that made its tensor
//   stream    the event before it on the same stream
//   rank      whatever else ended last on the same rank before it started (a wait of host or stream)
// For a message or collective that had to wait for its other end after it started, the cause is that other
// end. Following causes backwards from a step's last event gives the critical path of what happened.
#pragma once

#include <cstdint>
#include <vector>

#include "reports/step_events.h"

namespace plumbline {

enum class CauseKind : std::uint8_t { kNone, kData, kStream, kRank, kPeer };

constexpr std::int32_t kNoEvent = -1;

// Parallel to RunRecord::events; all values are indices into it.
struct EventLinks {
  std::vector<std::int32_t> match;  // p2p: the other end
  std::vector<std::int32_t> cause;
  std::vector<CauseKind> cause_kind;
  std::vector<std::int32_t> data[2];  // what the event reads, at most two
  std::vector<std::int32_t> stream;   // the event before it on its stream
  std::int64_t matched = 0;           // pairs
  std::int64_t unmatched = 0;         // sends and receives without another end in the record
};

EventLinks link_events(const RunRecord& record, const std::vector<StepEvents>& steps);

// From `event` back through its causes, `event` first. Ends where a cause is missing, or after `limit`
// entries.
std::vector<std::uint32_t> cause_chain(const EventLinks& links, std::uint32_t event, std::size_t limit);

}  // namespace plumbline
