// StepActivity: what the watchdog of a process that serves one rank may ask of the step under way. The thread that
// drives the backend writes it; the watchdog never makes a CUDA call, which could hang as well.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/runtime/rank_status.h"

namespace plumbline::cuda {

class StepActivity final : public RankActivity {
 public:
  // Times are of the steady clock since `epoch`, as the host comes to know what has happened.
  explicit StepActivity(Nanoseconds epoch) : epoch_(epoch) {}

  // RankActivity
  std::uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }
  std::optional<std::uint32_t> running_item() const override;
  std::vector<EnqueuedOperation> operations() const override;

  // The backend's. Kernels and groups are numbered together, from 0 in each step, as they are added.
  void begin_step();
  void add_kernel(std::uint32_t item);
  // `operations` in the order of execution; their group and times are set here.
  void add_group(std::vector<EnqueuedOperation> operations);
  void started(std::size_t number);
  void completed(std::size_t number);

 private:
  struct Row {
    std::optional<std::uint32_t> kernel;  // its item; else a group
    std::size_t first = 0, count = 0;     // of `operations_`
    bool started = false, completed = false;
  };
  Nanoseconds now() const;
  void start(Row& row);

  const Nanoseconds epoch_;
  mutable std::mutex mutex_;
  std::vector<Row> rows_;
  std::vector<EnqueuedOperation> operations_;
  std::optional<std::size_t> running_;  // kernel, a row
  std::atomic<std::uint64_t> progress_{0};
};

}  // namespace plumbline::cuda
