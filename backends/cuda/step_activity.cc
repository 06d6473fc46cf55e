#include "backends/cuda/step_activity.h"

#include <chrono>
#include <utility>

namespace plumbline::cuda {

Nanoseconds StepActivity::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
             .count() -
         epoch_;
}

std::optional<std::uint32_t> StepActivity::running_item() const {
  const std::lock_guard lock(mutex_);
  return running_ ? rows_[*running_].kernel : std::nullopt;
}

std::vector<EnqueuedOperation> StepActivity::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void StepActivity::begin_step() {
  const std::lock_guard lock(mutex_);
  rows_.clear();
  operations_.clear();
  running_.reset();
}

void StepActivity::add_kernel(std::uint32_t item) {
  const std::lock_guard lock(mutex_);
  rows_.push_back({item});
}

void StepActivity::add_group(std::vector<EnqueuedOperation> operations) {
  const std::lock_guard lock(mutex_);
  rows_.push_back({std::nullopt, operations_.size(), operations.size()});
  for (EnqueuedOperation& operation : operations) {
    operation.group = rows_.size();
    operation.created = now();
    operations_.push_back(operation);
  }
}

void StepActivity::start(Row& row) {
  if (std::exchange(row.started, true)) return;
  for (std::size_t i = row.first; i < row.first + row.count; ++i) operations_[i].start = now();
}

void StepActivity::started(std::size_t number) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[number];
  start(row);
  if (row.kernel && !row.completed) running_ = number;
  progress_.fetch_add(1, std::memory_order_relaxed);
}

void StepActivity::completed(std::size_t number) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[number];
  start(row);
  row.completed = true;
  for (std::size_t i = row.first; i < row.first + row.count; ++i) operations_[i].end = now();
  if (running_ == number) running_.reset();
  progress_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace plumbline::cuda
