// RankStatus: where the one rank of a process stands, in a run of one process a rank. Its driver writes it; a watchdog
// reads it from a thread of its own (backends/processes), so that a rank which hangs can still say where.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/program/link.h"

namespace plumbline {

// An operation of a group, from the moment the host enqueued it; for dumps.
struct EnqueuedOperation {
  std::uint32_t item = 0;
  std::int32_t communicator = 0;
  std::int32_t position = 0;  // own place in the communicator
  std::int32_t peer_position = -1;
  std::uint64_t group = 0;                        // operations of one group have the same number, not 0
  Nanoseconds created = 0, start = -1, end = -1;  // since the run's epoch; -1: not yet
};

// What a backend knows of the step under way. Any thread may ask.
class RankActivity {
 public:
  virtual ~RankActivity() = default;
  // Grows whenever something completes.
  virtual std::uint64_t progress() const = 0;
  // The item of the kernel that runs.
  virtual std::optional<std::uint32_t> running_item() const = 0;
  // Since the step began.
  virtual std::vector<EnqueuedOperation> operations() const = 0;
};

class RankStatus {
 public:
  struct Position {
    int step = -1;                             // -1: no step has begun
    bool in_step = false;                      // false: between steps
    std::uint32_t item = 0;                    // where the host stands; of a group, its first
    bool blocked = false;                      // the host waits for something
    std::optional<std::uint32_t> kernel_item;  // of the kernel that runs
    int arm = -1;
    std::string awaits;  // between steps: what it does together with others; empty: nothing
  };
  Position position() const;
  // Grows as long as anything moves.
  std::uint64_t progress() const;
  // The operations that this step's host has enqueued, and the Program they are of; null between steps.
  std::vector<EnqueuedOperation> operations() const;
  const LinkedProgram* program() const;
  // Whether something is expected to move: in a step, while ranks exchange what they know of one, or while something
  // is awaited.
  bool watched() const;
  // Steady clock at the run's start, from which the backend counts its times.
  Nanoseconds epoch() const { return epoch_.load(); }

  // The driver's. `activity` stays until detach().
  void attach(const RankActivity& activity, Nanoseconds epoch);
  void detach();
  // `linked` stays until the next step begins.
  void begin_step(int step, const LinkedProgram& linked, std::uint32_t first_item);
  void show(std::uint32_t item, bool blocked, int arm);
  void end_step();
  void watch_exchange(bool on) { exchanging_.store(on); }
  // Between steps: "makes communicators"; empty: no more.
  void await(const std::string& what);

  // The watchdog's, after the last words: what the rank has enqueued is to end, and nothing new begins.
  void give_up() { given_up_.store(true); }
  bool given_up() const { return given_up_.load(); }

 private:
  mutable std::mutex mutex_;
  Position position_;
  std::atomic<std::uint64_t> moves_{0};
  std::atomic<bool> exchanging_{false}, given_up_{false};
  std::atomic<Nanoseconds> epoch_{0};
  const RankActivity* activity_ = nullptr;
  const LinkedProgram* linked_ = nullptr;
};

}  // namespace plumbline
