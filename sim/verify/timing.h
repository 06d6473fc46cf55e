// Timing: virtual times of one traversal in both lanes. A kernel starts when its stream is free and the host
// has enqueued it; a group when, besides, what it waits for is over; a message or collective takes its
// duration from the moment all its ends are active. Host operations take no time, and a host waits for what
// its items say.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "engine/runtime/time_model.h"
#include "sim/verify/handle_queue.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

constexpr int kLanes = 2;
using Lanes = std::array<Nanoseconds, kLanes>;

// Lanes are stored one by one as they are computed. Loading both at once, as a compiler's 16-byte copy does, would
// wait until the two stores have reached the cache: a third of the walk's time. So lanes are copied apart.
[[gnu::always_inline]] inline Nanoseconds lane(const Lanes& lanes, std::size_t i) {
  Nanoseconds value = lanes[i];
  asm("" : "+r"(value));
  return value;
}
[[gnu::always_inline]] inline void assign(Lanes& to, const Lanes& from) {
  static_assert(kLanes == 2);
  const Nanoseconds first = lane(from, 0), second = lane(from, 1);
  to[0] = first;
  to[1] = second;
}
[[gnu::always_inline]] inline void raise(Lanes& value, const Lanes& to) {
  for (std::size_t i = 0; i < kLanes; ++i) value[i] = std::max(value[i], lane(to, i));
}

// Fills Port::duration. `members`: by communicator, as many as a collective is over, where the Program stands for a
// larger one (quotient.h).
void set_durations(CheckWorld& world, const TimeModel& model, const std::vector<int>* members = nullptr);

class Timing {
 public:
  Timing(const CheckWorld& world, const TimeModel& model, int streams);

  void launch(std::uint32_t thread, Item item, const Lanes& host) {
    const unsigned kernel = item_ref(item);
    Lanes& tail = tails_[stream_index(thread, item_stream(item))];
    const Nanoseconds cost = kernel_cost(thread, kernel);
    for (std::size_t i = 0; i < kLanes; ++i) tail[i] = std::max(tail[i], host[i]) + cost;
  }

  // Waits, records and reads; moves `host` where the host waits.
  void step(std::uint32_t thread, Item item, Lanes& host);

  // Earliest start of a group whose last item is `last`.
  Lanes group_begin(std::uint32_t thread, Item last, const Lanes& host) const {
    Lanes begin;
    assign(begin, host);
    raise(begin, tails_[stream_index(thread, item_stream(last))]);
    if ((item_flags(last) & kAfterCompute) != 0) raise(begin, tails_[stream_index(thread, kComputeStream)]);
    return begin;
  }
  void group_end(std::uint32_t thread, std::uint32_t first, std::uint32_t end, const Lanes& finish,
                 Lanes& host) {
    const Item last = world_->program->items[end - 1];
    const unsigned flags = item_flags(last);
    assign(tails_[stream_index(thread, item_stream(last))], finish);
    if ((flags & kComputeWaits) != 0) raise(tails_[stream_index(thread, kComputeStream)], finish);
    if ((flags & kHandle) != 0) keep_handles(thread, first, end, finish);
    if ((flags & kHostWaits) != 0) raise(host, finish);
  }

  // When everything enqueued so far is over on all threads; `hosts` by thread come in through raise().
  Lanes end() const;

 private:
  struct FreeDeleter {
    void operator()(void* memory) const { std::free(memory); }
  };
  struct Durations {
    // Thread by kernel, cost + 1, 0 when not asked yet. Mostly untouched, hence from calloc, which does not
    // touch it.
    std::unique_ptr<Nanoseconds[], FreeDeleter> kernels;
  };
  struct Kept {
    ScratchVector<HandleQueue<Lanes>> queues;
    std::map<std::uint64_t, Lanes> slots;  // kSlotQueue: end of the operation that filled the slot
  };

  std::size_t stream_index(std::uint32_t thread, int stream) const {
    return static_cast<std::size_t>(thread) * streams_ + static_cast<std::size_t>(stream);
  }
  Nanoseconds kernel_cost(std::uint32_t thread, unsigned kernel) {
    Nanoseconds& cost =
        durations_->kernels[static_cast<std::size_t>(thread) * world_->program->kernels.size() + kernel];
    if (cost == 0) cost = model_.kernel(static_cast<Rank>(thread), world_->program->kernels[kernel]) + 1;
    return cost - 1;
  }
  void keep_handles(std::uint32_t thread, std::uint32_t first, std::uint32_t end, const Lanes& finish);
  void wait_handles(std::uint32_t thread, Item item, Lanes& host);
  void waited(std::uint32_t thread, Item item, const Lanes& until, Lanes& host);
  static std::uint64_t slot_key(unsigned slot_class, int microbatch) {
    return std::uint64_t{slot_class} << 20 | static_cast<std::uint32_t>(microbatch);
  }

  const CheckWorld* world_;
  TimeModel model_;
  std::size_t streams_;
  std::shared_ptr<Durations> durations_;
  ScratchVector<Lanes> tails_;   // thread by stream
  ScratchVector<Lanes> events_;  // thread by event
  ScratchVector<Kept> kept_;     // by thread
};

}  // namespace plumbline::verify
