// Live: a World whose calls come one at a time from a real program instead of a Program's list - the doubles of CUDA
// and NCCL (backends/cuda/double) are made so. The rules are the same code; what differs is said by this interface:
// memory is the caller's, a kernel is something the caller runs, and the tables grow while the World lives.
//
// A live World is bound to a Program with one thread a device, `streams` as many as are ever used, and whatever
// tables there are so far. Its LinkedProgram has a window of the same size for every thread, so that rows have room
// to come. A caller appends an item for every call it makes (the World looks its endpoint, kernel or comm call up
// by item), rows before the items that use them, and tells with grow() that communicators or rows were added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/base/units.h"
#include "sim/device_graph.h"

namespace plumbline::sim {

class LiveCalls {
 public:
  virtual ~LiveCalls() = default;
  // The kernel of `item` starts as `node`: does what it does, and returns how long it takes. Nothing: it goes on
  // until World::end_kernel.
  virtual std::optional<Nanoseconds> start(NodeId node, std::uint32_t item) = 0;
  // Where the bytes of a group's operation lie: what is sent, where it is received, what a collective works on in
  // place. Asked when they move.
  virtual std::byte* data(std::uint32_t item) = 0;
  // The operation is over.
  virtual void over(std::uint32_t item) = 0;
};

}  // namespace plumbline::sim
