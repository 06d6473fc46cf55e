// SlotTable: the slots of one rank while its items are walked in host order. Slot classes get their storage
// at first use, so that a rank pays for its own stages only; reset() makes the table ready for the next rank
// without giving memory back.
#pragma once

#include <cstdint>

#include "engine/program/program.h"
#include "sim/verify/scratch.h"

namespace plumbline::verify {

enum class SlotPhase : std::uint8_t {
  kUnwritten,
  kAssumed,  // of a fragment: read before anything wrote it
  kLive,
  kFreed,
};

struct SlotState {
  std::uint32_t writer = 0;  // item index + 1
  std::uint32_t reader = 0;  // item index + 1 of the last reader; 0: none since it was written
  SlotPhase phase = SlotPhase::kUnwritten;
  std::uint8_t writer_stream = 0;
  std::uint8_t reader_stream = 0;
  bool more_readers = false;  // others, unordered with `reader`, are in the side list
};

class SlotTable {
 public:
  explicit SlotTable(const Program& program) : program_(&program) {}

  // Ahead of every rank, the first one too.
  void reset() {
    if (places_.size() != program_->slots.size()) make_places();
    for (const std::uint32_t slot : used_) places_[slot].base = kUnused;
    used_.clear();
    states_.clear();
    journal_.clear();
    journaling_ = false;
  }

  // Number of a slot; stays valid until reset(). A class of step scope ignores the microbatch.
  [[gnu::always_inline]] std::uint32_t index(std::uint32_t slot_class, int microbatch) {
    const Place& place = places_[slot_class];
    if (place.base == kUnused) open(slot_class);
    return place.base + (static_cast<std::uint32_t>(microbatch) & place.mask);
  }
  [[gnu::always_inline]] SlotState& state(std::uint32_t index) {
    if (journaling_) journal_.push_back({index, states_[index]});
    return states_[index];
  }

  // From begin_trial() to roll_back() changes are kept aside and then undone: one arm of a decision is tried,
  // then the other.
  void begin_trial() { journaling_ = true; }
  void roll_back() {
    for (auto entry = journal_.rbegin(); entry != journal_.rend(); ++entry)
      states_[entry->index] = entry->before;
    journal_.clear();
    journaling_ = false;
  }

  const ScratchVector<std::uint32_t>& used_classes() const { return used_; }  // in order of first use
  std::uint32_t class_size(std::uint32_t slot_class) const {
    return program_->slots[slot_class].per_microbatch ? static_cast<std::uint32_t>(program_->microbatches)
                                                      : 1;
  }

 private:
  static constexpr std::uint32_t kUnused = 0xFFFFFFFFu;

  void make_places() {
    places_.resize(program_->slots.size());
    for (std::size_t i = 0; i < places_.size(); ++i)
      places_[i].mask = program_->slots[i].per_microbatch ? 0xFFFFFu : 0;
  }

  void open(std::uint32_t slot_class) {
    places_[slot_class].base = static_cast<std::uint32_t>(states_.size());
    states_.resize(states_.size() + class_size(slot_class));
    used_.push_back(slot_class);
    // A persistent slot is written before the step begins.
    if (program_->slots[slot_class].persistent) states_.back().phase = SlotPhase::kLive;
  }

  struct Place {
    std::uint32_t base = kUnused;
    std::uint32_t mask = 0;  // of the microbatch
  };
  struct Change {
    std::uint32_t index;
    SlotState before;
  };

  const Program* program_;
  ScratchVector<Place> places_;
  ScratchVector<std::uint32_t> used_;
  ScratchVector<SlotState> states_;
  ScratchVector<Change> journal_;
  bool journaling_ = false;
};

}  // namespace plumbline::verify
