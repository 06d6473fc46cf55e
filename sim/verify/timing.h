// Timing: virtual times of one traversal in both lanes. A kernel starts when its stream is free and the host
// has enqueued it; a group when, besides, what it waits for is over; a message or collective takes its
// duration from the moment all its ends are active. Host operations take no time, and a host waits for what
// its items say.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "engine/runtime/time_model.h"
#include "sim/verify/handle_queue.h"
#include "sim/verify/lanes.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

// Fills Port::duration. `members`: by communicator, as many as a collective is over, where the Program stands for a
// larger one (quotient.h).
void set_durations(CheckWorld& world, const TimeModel& model, const std::vector<int>* members = nullptr);

class Timing {
 public:
  // Both outlive this.
  Timing(const CheckWorld& world, const TimeModel& model, int streams);

  // One thread's rows, for as long as somebody walks its items.
  struct Track {
    Lanes* tails;   // by stream
    double* costs;  // by kernel; see kNothing
  };
  Track track(std::size_t thread) {
    return {tails_.data() + first_tail(thread),
            (kernels_ == 0 ? costs_.data() : costs_by_thread_.get()) + first_cost(thread)};
  }
  std::size_t first_tail(std::size_t thread) const { return thread * streams_; }
  std::size_t first_cost(std::size_t thread) const { return thread * kernels_; }

  void launch(const Track& track, std::uint32_t thread, Item item, const Lanes& host) {
    double cost = track.costs[item_ref(item)];
    if (std::bit_cast<std::uint64_t>(cost) == 0) [[unlikely]]
      cost = ask(track, thread, item_ref(item));
    Lanes& tail = track.tails[item_stream(item)];
    tail = later(tail, host).plus(cost);
  }

  // Waits, records and reads; moves `host` where the host waits.
  void step(std::uint32_t thread, Item item, Lanes& host);

  // Earliest start of a group whose last item is `last`.
  static Lanes group_begin(const Track& track, Item last, const Lanes& host) {
    Lanes begin = later(host, track.tails[item_stream(last)]);
    if ((item_flags(last) & kAfterCompute) != 0) begin.raise(track.tails[kComputeStream]);
    return begin;
  }
  // `first`, `end`: its items.
  void group_end(const Track& track, std::uint32_t thread, std::uint32_t first, std::uint32_t end, Item last,
                 const Lanes& finish, Lanes& host) {
    const unsigned flags = item_flags(last);
    track.tails[item_stream(last)] = finish;
    if ((flags & kComputeWaits) != 0) track.tails[kComputeStream].raise(finish);
    if ((flags & kHandle) != 0) keep_handles(thread, first, end, finish);
    if ((flags & kHostWaits) != 0) host.raise(finish);
  }

  // When everything enqueued so far is over on all threads; `hosts` by thread come in through raise().
  Lanes end() const;

 private:
  static constexpr double kNothing =
      -0.0;  // what a kernel costs that takes no time: added it changes nothing

  struct Kept {
    ScratchVector<HandleQueue<Lanes>> queues;
    std::map<std::uint64_t, Lanes> slots;  // kSlotQueue: end of the operation that filled the slot
  };

  std::size_t stream_index(std::uint32_t thread, int stream) const {
    return static_cast<std::size_t>(thread) * streams_ + static_cast<std::size_t>(stream);
  }
  double ask(const Track& track, std::uint32_t thread, unsigned kernel);
  void keep_handles(std::uint32_t thread, std::uint32_t first, std::uint32_t end, Lanes finish);
  void wait_handles(std::uint32_t thread, Item item, Lanes& host);
  void waited(std::uint32_t thread, Item item, const Lanes& until, Lanes& host);
  static std::uint64_t slot_key(unsigned slot_class, int microbatch) {
    return std::uint64_t{slot_class} << 20 | static_cast<std::uint32_t>(microbatch);
  }

  const CheckWorld* world_;
  const TimeModel* model_;
  std::size_t streams_;
  std::size_t kernels_;          // from one thread's costs to the next's; 0 where ranks are alike
  ScratchVector<double> costs_;  // where ranks are alike, by kernel
  // Otherwise thread by kernel, and 0 when not asked yet. Mostly untouched, hence from calloc, which does not touch it.
  std::shared_ptr<double[]> costs_by_thread_;
  ScratchVector<Lanes> tails_;   // thread by stream
  ScratchVector<Lanes> events_;  // thread by event
  ScratchVector<Kept> kept_;     // by thread; empty until the first handle
};

}  // namespace plumbline::verify
