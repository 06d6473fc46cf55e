// The driver of one rank: the host goes on until it waits, then the kernel whose turn it is runs, and with
// nothing to do it sleeps until a message is through. It never gives up by itself: a watchdog looks on from a
// thread of its own, by what RankStatus shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backends/gloo/backend.h"
#include "backends/gloo/transport.h"
#include "engine/train/driver.h"

namespace plumbline::gloo {

// Where this rank stands; written by the driver, read by any thread.
class RankStatus {
 public:
  struct Position {
    int program = -1;  // number of the Program in the order of first use; -1: no step has begun
    int step = -1;
    bool in_step = false;                     // false: between steps
    std::uint32_t item = 0;                   // where the host stands; of a group, its first
    bool blocked = false;                     // the host waits for something
    std::uint32_t kernel_item = 0xFFFFFFFFu;  // of the kernel that runs; sim::kNoItem without one
    int arm = -1;
  };
  Position position() const;
  // Grows as long as anything moves.
  std::uint64_t progress() const;
  // The operations that this step's host has enqueued, and the Program they are of; null between steps.
  std::vector<Operation> operations() const;
  const LinkedProgram* program() const;
  // Whether something is expected to move: in a step, or while ranks exchange what they know of one.
  bool watched() const;
  void watch_exchange(bool on) { exchanging_.store(on); }
  Nanoseconds epoch() const { return epoch_.load(); }

 private:
  friend class GlooDriver;
  mutable std::mutex mutex_;
  Position position_;
  std::atomic<std::uint64_t> moves_{0};
  std::atomic<bool> exchanging_{false};
  std::atomic<Nanoseconds> epoch_{0};
  const GlooBackend* backend_ = nullptr;
  const LinkedProgram* linked_ = nullptr;
};

// Runs the part of `transport`'s rank. Both outlive the driver; of [sim], strict host order and launch_blocking
// hold here too.
DriverFactory driver(Transport& transport, RankStatus& status, Nanoseconds epoch);

}  // namespace plumbline::gloo
