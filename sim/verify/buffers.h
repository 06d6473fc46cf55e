// Buffers: the life of slots on one rank in host order, checked against what the streams know of each other,
// and the memory they take. Two uses are ordered when one's stream (or the host, for everything it enqueues
// later) waits for the other's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/verdict.h"
#include "sim/verify/slot_table.h"
#include "sim/verify/stream_clocks.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

// Where a use comes from.
struct Use {
  int stream = 0;
  std::uint32_t item = 0;
};

// What a live slot of a class counts for; nothing for a persistent one, which is there all the time.
struct ClassCost {
  Bytes bytes = 0;
  Bytes activation_bytes = 0;  // 0 unless it is an activation, a gradient of one, a stash, or rebuilt
  int stashes = 0;
  int slots = 0;
};
inline ClassCost class_cost(const SlotClass& slot) {
  if (slot.persistent) return {};
  const bool for_backward = slot.kind == SlotKind::kActivation || slot.kind == SlotKind::kGradient ||
                            slot.kind == SlotKind::kStash || slot.kind == SlotKind::kRebuilt;
  return {slot.bytes, for_backward ? slot.bytes : 0, slot.kind == SlotKind::kStash ? 1 : 0, 1};
}
ScratchVector<ClassCost> class_costs(const Program& program);

class Buffers {
 public:
  // Everything given outlives this.
  Buffers(const CheckWorld& world, std::size_t thread, const ScratchVector<ClassCost>& costs,
          SlotTable& slots, const StreamClocks& clocks)
      : world_(&world), thread_(thread), costs_(costs.data()), slots_(&slots), clocks_(&clocks) {}

  void read(std::uint32_t slot_class, int microbatch, Use use) {
    const std::uint32_t index = slots_->index(slot_class, microbatch);
    SlotState& slot = slots_->state(index);
    if (slot.phase != SlotPhase::kLive && !missing(slot, slot_class, microbatch, use)) return;
    if (!clocks_->ordered(use.stream, slot.writer_stream, slot.writer))
      unordered_read(slot, slot_class, microbatch, use);
    if (slot.reader != 0 && !clocks_->ordered(use.stream, slot.reader_stream, slot.reader))
      keep_reader(slot, index);
    slot.reader = use.item + 1;
    slot.reader_stream = static_cast<std::uint8_t>(use.stream);
  }

  // Allocates and writes. A persistent slot is overwritten in place.
  void write(std::uint32_t slot_class, int microbatch, Use use) {
    const std::uint32_t index = slots_->index(slot_class, microbatch);
    SlotState& slot = slots_->state(index);
    if (slot.phase == SlotPhase::kLive || slot.phase == SlotPhase::kAssumed) {
      overwrite(slot, index, slot_class, microbatch, use);
    } else {
      allocate(slot_class, use.item);
    }
    written(slot, use);
  }

  // Changes a slot in place, after it was read by the same use.
  void update(std::uint32_t slot_class, int microbatch, Use use) {
    const std::uint32_t index = slots_->index(slot_class, microbatch);
    SlotState& slot = slots_->state(index);
    if (slot.phase == SlotPhase::kUnwritten || slot.phase == SlotPhase::kFreed)
      return;  // reported by the read
    check_users(slot, index, slot_class, microbatch, use, "changes");
    const SlotPhase phase = slot.phase;
    written(slot, use);
    slot.phase = phase;
  }

  void release(std::uint32_t slot_class, int microbatch, Use use) {
    const std::uint32_t index = slots_->index(slot_class, microbatch);
    SlotState& slot = slots_->state(index);
    if (slot.phase != SlotPhase::kLive && !missing(slot, slot_class, microbatch, use)) return;
    if (slot.more_readers || !clocks_->ordered(use.stream, slot.writer_stream, slot.writer) ||
        (slot.reader != 0 && !clocks_->ordered(use.stream, slot.reader_stream, slot.reader))) {
      check_users(slot, index, slot_class, microbatch, use, "releases");
    }
    if (slot.phase == SlotPhase::kLive) deallocate(slot_class);
    slot.phase = SlotPhase::kFreed;
  }

  // The last writer of a slot; null when it is not live.
  const SlotState* live(std::uint32_t slot_class, int microbatch) {
    const SlotState& slot = slots_->state(slots_->index(slot_class, microbatch));
    return slot.phase == SlotPhase::kLive || slot.phase == SlotPhase::kAssumed ? &slot : nullptr;
  }

  void report(FindingKind kind, std::uint32_t item, std::string why) {
    add(kind, item, kNone32, std::move(why));
  }
  void report_leaks();  // at the end of an arm

  // Live memory is put back; peaks, findings and their limits stay.
  void begin_trial();
  void roll_back();

  RankMemory memory() const;
  std::vector<Finding> take_findings() { return std::move(findings_); }

 private:
  struct OtherReader {
    std::uint32_t slot = 0;
    std::uint32_t reader = 0;
    int stream = 0;
  };
  struct Live {
    Bytes bytes = 0;
    Bytes activation_bytes = 0;
    int stashes = 0;
    int slots = 0;
  };

  void written(SlotState& slot, Use use) {
    slot.phase = SlotPhase::kLive;
    slot.writer = use.item + 1;
    slot.writer_stream = static_cast<std::uint8_t>(use.stream);
    slot.reader = 0;
    slot.more_readers = false;
  }

  void allocate(std::uint32_t slot_class, std::uint32_t item) {
    const ClassCost& cost = costs_[slot_class];
    live_.bytes += cost.bytes;
    live_.activation_bytes += cost.activation_bytes;
    live_.stashes += cost.stashes;
    live_.slots += cost.slots;
    if (live_.bytes > peak_.bytes) {
      peak_.bytes = live_.bytes;
      peak_item_ = item;
    }
    if (live_.activation_bytes > peak_.activation_bytes) peak_.activation_bytes = live_.activation_bytes;
    if (live_.stashes > peak_.stashes) peak_.stashes = live_.stashes;
  }

  void deallocate(std::uint32_t slot_class) {
    const ClassCost& cost = costs_[slot_class];
    live_.bytes -= cost.bytes;
    live_.activation_bytes -= cost.activation_bytes;
    live_.stashes -= cost.stashes;
    live_.slots -= cost.slots;
  }

  bool missing(SlotState& slot, std::uint32_t slot_class, int microbatch, Use use);
  void unordered_read(const SlotState& slot, std::uint32_t slot_class, int microbatch, Use use);
  void keep_reader(SlotState& slot, std::uint32_t index);
  void overwrite(SlotState& slot, std::uint32_t index, std::uint32_t slot_class, int microbatch, Use use);
  void check_users(const SlotState& slot, std::uint32_t index, std::uint32_t slot_class, int microbatch,
                   Use use, const char* verb);
  std::string slot_name(std::uint32_t slot_class, int microbatch) const;
  void add(FindingKind kind, std::uint32_t culprit, std::uint32_t other, std::string why);

  const CheckWorld* world_;
  std::size_t thread_;
  const ClassCost* costs_;
  SlotTable* slots_;
  const StreamClocks* clocks_;
  ScratchVector<OtherReader> other_readers_;
  Live live_, peak_, before_trial_;
  std::size_t readers_before_trial_ = 0;
  std::int64_t peak_item_ = -1;
  std::vector<Finding> findings_;
  std::array<int, 16> count_of_kind_{};
};

}  // namespace plumbline::verify
