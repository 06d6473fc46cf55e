// SelfSends: device copies made by NCCL, as a send to oneself and its receive in one group on a communicator of one
// rank. One pair a group, and a communicator a line of messages: NCCL keeps the order of a communicator's kernels
// whatever their stream (N6), so lines that shared one would wait for each other.
//
// These communicators are blocking: with one rank there is nobody to wait for.
#pragma once

#include <memory>
#include <vector>

#include "backends/cuda/device.h"

namespace plumbline::cuda {

class SelfSends {
 public:
  explicit SelfSends(Device device) : device_(std::move(device)) {}
  SelfSends(const SelfSends&) = delete;
  SelfSends& operator=(const SelfSends&) = delete;
  ~SelfSends();  // aborts its communicators: what they still have enqueued must have run dry

  // Makes communicators until there are so many lines.
  Status reserve(std::size_t lines);
  // Enqueues the copy behind what is on the stream. The ranges do not overlap; no bytes, no call.
  Status copy(std::size_t line, std::byte* to, const std::byte* from, Bytes bytes, StreamHandle stream);

 private:
  const Libraries& on() const { return *device_.libraries; }

  Device device_;
  std::vector<CommHandle> lines_;
};

}  // namespace plumbline::cuda
