// V orders as rows of slots: what building-block searches (v-auto, 1f1b-v) move around. A slot holds one
// pass or is idle; every pass takes one slot, whatever it costs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/schedule/v_legs.h"

namespace plumbline {

// Legs 0 to 3 (v_legs.h), the weight gradients of legs 2 and 3, nothing.
using SlotPass = std::int8_t;
constexpr SlotPass kWeightOf2 = 4;
constexpr SlotPass kWeightOf3 = 5;
constexpr SlotPass kIdle = -1;
constexpr int kSlotPasses = 6;

constexpr bool takes_activation(SlotPass pass) { return pass == 0 || pass == 1; }
constexpr bool frees_activation(SlotPass pass) { return pass >= kWeightOf2; }

using SlotRow = std::vector<SlotPass>;
using SlotRows = std::vector<SlotRow>;  // one a rank, all of one length

// Where each of a rank's six passes lies inside six slots; -1: nowhere.
using SlotPattern = std::array<int, kSlotPasses>;

// The pattern of every rank repeated, without what comes before a pass can first run (its leg has to
// arrive) and after its `microbatches`-th time.
SlotRows repeat_pattern(const std::vector<SlotPattern>& pattern, int microbatches);

using PassCounts = std::array<int, kSlotPasses>;

// Slot of each rank's k-th pass of each kind, -1 while unknown.
class SlotOfPass {
 public:
  SlotOfPass(int ranks, int microbatches)
      : ranks_(ranks),
        slots_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(microbatches) * kSlotPasses, -1) {}
  int& of(int rank, SlotPass pass, int k) {
    const std::size_t row = static_cast<std::size_t>(k) * static_cast<std::size_t>(ranks_);
    return slots_[(row + static_cast<std::size_t>(rank)) * kSlotPasses + static_cast<std::size_t>(pass)];
  }

 private:
  const int ranks_;
  std::vector<int> slots_;
};

// Most activations a rank holds at once.
int peak_of(const SlotRow& row);
int peak_of(const SlotRows& rows);

// A row's actions. Without `split` weight gradients are left out and backwards are whole.
std::vector<Action> actions_of(const SlotRow& row, int ranks, int rank, Backward backward);

}  // namespace plumbline
