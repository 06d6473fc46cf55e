// Entry: one operation of a communication group, from the moment its host issued it.
#pragma once

#include <cstdint>

#include "engine/base/units.h"
#include "sim/device_graph.h"
#include "sim/slots.h"

namespace plumbline::sim {

using EntryId = std::uint32_t;  // 0: none

struct Entry {
  std::uint32_t thread = 0;
  std::uint32_t item = 0;
  std::uint32_t route = 0;  // row of LinkedProgram::endpoints
  NodeId node = 0;          // the kernel it is part of; 0 while its host is held by a cold connection
  EntryId next = 0;         // next of its queue (channel) or call (collective)
  Bytes bytes = 0;
  std::int64_t left = 0;     // p2p: units not matched yet (Channels)
  Nanoseconds duration = 0;  // p2p: the transfer
  Nanoseconds ready = -1;    // all participants active
  Nanoseconds end = -1;      // decided end; -1: not yet
  Use use;
  bool active = false;
  bool registered = false;  // a send that never completes alone (N37)
  bool buffered = false;    // a send that completed without its receive (N32)
  bool dropped = false;     // its group was refused after all, at its connection
  bool broken = false;      // a collective whose members' calls differ, emulated: it never completes (N58)
};

}  // namespace plumbline::sim
