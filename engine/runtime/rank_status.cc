#include "engine/runtime/rank_status.h"

namespace plumbline {

RankStatus::Position RankStatus::position() const {
  const std::lock_guard lock(mutex_);
  Position out = position_;
  if (out.in_step && activity_ != nullptr) out.kernel_item = activity_->running_item();
  return out;
}

std::uint64_t RankStatus::progress() const {
  const std::lock_guard lock(mutex_);
  return moves_.load(std::memory_order_relaxed) + (activity_ == nullptr ? 0 : activity_->progress());
}

std::vector<EnqueuedOperation> RankStatus::operations() const {
  const std::lock_guard lock(mutex_);
  return activity_ == nullptr || !position_.in_step ? std::vector<EnqueuedOperation>()
                                                    : activity_->operations();
}

const LinkedProgram* RankStatus::program() const {
  const std::lock_guard lock(mutex_);
  return position_.in_step ? linked_ : nullptr;
}

bool RankStatus::watched() const {
  const std::lock_guard lock(mutex_);
  return position_.in_step || !position_.awaits.empty() || exchanging_.load();
}

void RankStatus::attach(const RankActivity& activity, Nanoseconds epoch) {
  const std::lock_guard lock(mutex_);
  activity_ = &activity;
  epoch_ = epoch;
}

void RankStatus::detach() {
  const std::lock_guard lock(mutex_);
  activity_ = nullptr;
  position_.in_step = false;
}

void RankStatus::await(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (position_.awaits == what) return;
  position_.awaits = what;
  moves_.fetch_add(1, std::memory_order_relaxed);
}

void RankStatus::begin_step(int step, const LinkedProgram& linked, std::uint32_t first_item) {
  const std::lock_guard lock(mutex_);
  position_ = {};
  position_.step = step;
  position_.in_step = true;
  position_.item = first_item;
  linked_ = &linked;
  moves_.fetch_add(1, std::memory_order_relaxed);
}

void RankStatus::show(std::uint32_t item, bool blocked, int arm) {
  const std::lock_guard lock(mutex_);
  if (position_.item != item) moves_.fetch_add(1, std::memory_order_relaxed);
  position_.item = item;
  position_.blocked = blocked;
  position_.arm = arm;
}

void RankStatus::end_step() {
  const std::lock_guard lock(mutex_);
  position_.in_step = false;
  moves_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace plumbline
