// Transport: how the ranks of a run, one a process, move bytes. One call is what NCCL calls a group: all of its
// messages are posted, then all are waited for. Sends are rendezvous: a send is through when its receive has
// taken it.
//
// Tags only keep apart what must not meet: both ends of a message name the same one, and messages of one tag
// between two ranks are first in, first out. Nothing is ever matched out of order by a tag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backends/processes/store.h"
#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/rank_grid.h"

namespace plumbline::gloo {

struct Message {
  bool send = false;
  Rank peer = 0;
  std::uint32_t tag = 0;
  std::byte* data = nullptr;  // must stay in place until the call returns
  Bytes bytes = 0;            // both ends give the same number; 0 is a message too
  Nanoseconds end = 0;        // set: steady clock, when it was through
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Blocks until all are through; may be called from several threads at a time. A message to oneself meets its
  // counterpart in the same call. The error says which peer did not answer; after one, nothing more may be sent.
  virtual Status exchange(std::span<Message> messages) = 0;
};

// Tags. The lane is the communicator, or one of the reserved ones; counts start anew when they have gone round.
constexpr std::uint32_t kLaneBits = 12, kCountBits = 18;
constexpr std::uint32_t kMostLanes = (1u << kLaneBits) - 16;  // communicators of a Program
constexpr std::uint32_t kChannelLane = kMostLanes;            // ControlChannel
constexpr std::uint32_t kClockLane = kMostLanes + 1;          // clock alignment
constexpr std::uint32_t kGroupLane = kMostLanes + 2;          // Collective, the first of 8
constexpr std::uint32_t kSaveLane = kMostLanes + 10;          // ControlChannel of saves beside training
constexpr std::uint32_t tag_of(std::uint32_t lane, std::uint32_t count) {
  return (lane << kCountBits) | (count & ((1u << kCountBits) - 1));
}

// Connects this process to all others through the store at `address`, under `prefix`. Needs a word of every
// rank within `seconds`; the error names those that did not come. `interface_host`: name or address of the own
// interface; empty: found by the host's name, loopback where the store is on loopback.
Result<std::unique_ptr<Transport>> connect(const processes::StoreAddress& address, const std::string& prefix,
                                           Rank rank, int world, double seconds,
                                           const std::string& interface_host = {});

}  // namespace plumbline::gloo
