#include "engine/schedule/v_slots.h"

#include <algorithm>

#include "engine/schedule/v_repeat.h"

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Idles every sixth slot from `slot` on, backwards with a negative step.
void clear_repetitions(SlotRow& row, int slot, int step) {
  for (; slot >= 0 && slot < static_cast<int>(row.size()); slot += step) row[at(slot)] = kIdle;
}

void keep_repetitions(SlotRow& row, int first, int microbatches) {
  clear_repetitions(row, first - kBlockSlots, -kBlockSlots);
  clear_repetitions(row, first + kBlockSlots * microbatches, kBlockSlots);
}

}  // namespace

SlotRows repeat_pattern(const std::vector<SlotPattern>& pattern, int microbatches) {
  const int ranks = static_cast<int>(pattern.size());
  const int repetitions = 4 * ranks + microbatches + 1;
  SlotRows rows(pattern.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank].assign(at(kBlockSlots * repetitions), kIdle);
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      for (SlotPass pass = 0; pass < kSlotPasses; ++pass) {
        const int slot = pattern[rank][at(pass)];
        if (slot >= 0) rows[rank][at(kBlockSlots * repetition + slot)] = pass;
      }
    }
  }
  int index = kBlockSlots;  // one block ahead, so that there is something to clear in front
  for (SlotPass leg = 0; leg < kLegs; ++leg) {
    for (int step = 0; step < ranks; ++step) {
      SlotRow& row = rows[at(leg_goes_down(leg) ? step : ranks - 1 - step)];
      while (row[at(index)] != leg) ++index;
      keep_repetitions(row, index, microbatches);
      ++index;
      if (leg_is_forward(leg)) continue;
      const SlotPass weight = leg == 2 ? kWeightOf2 : kWeightOf3;
      for (int slot = index; slot < index + kBlockSlots; ++slot) {
        if (row[at(slot)] != weight) continue;
        keep_repetitions(row, slot, microbatches);
        break;
      }
    }
  }
  return rows;
}

int peak_of(const SlotRow& row) {
  int held = 0, most = 0;
  for (const SlotPass pass : row) {
    held += takes_activation(pass) ? 1 : frees_activation(pass) ? -1 : 0;
    most = std::max(most, held);
  }
  return most;
}

int peak_of(const SlotRows& rows) {
  int most = 0;
  for (const SlotRow& row : rows) most = std::max(most, peak_of(row));
  return most;
}

std::vector<Action> actions_of(const SlotRow& row, int ranks, int rank, Backward backward) {
  std::vector<Action> actions;
  int count[kSlotPasses] = {};
  for (const SlotPass pass : row) {
    if (pass == kIdle || (backward == Backward::kWhole && frees_activation(pass))) continue;
    const int leg = frees_activation(pass) ? pass - 2 : pass;
    const ActionKind kind = leg_is_forward(leg)            ? ActionKind::kForward
                            : frees_activation(pass)       ? ActionKind::kWeightGrad
                            : backward == Backward::kSplit ? ActionKind::kInputGrad
                                                           : ActionKind::kBackward;
    const int stage = leg_stage(ranks, rank, leg);
    actions.push_back(Action{count[pass]++, static_cast<std::uint16_t>(stage), kind, 0});
  }
  return actions;
}

}  // namespace plumbline
