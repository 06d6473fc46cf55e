#include "engine/schedule/v_fill.h"

#include <algorithm>
#include <deque>

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

PassCounts count_passes(const SlotRow& row) {
  PassCounts counts{};
  for (const SlotPass pass : row) {
    if (pass != kIdle) ++counts[at(pass)];
  }
  return counts;
}

class GapFiller {
 public:
  GapFiller(SlotRows& rows, int microbatches)
      : rows_(rows),
        ranks_(static_cast<int>(rows.size())),
        length_(static_cast<int>(rows.front().size())),
        peak_(peak_of(rows)),
        slots_(ranks_, microbatches),
        counts_(rows.size(), PassCounts{}),
        held_(rows.size(), 0) {
    for (const SlotRow& row : rows) {
      PassCounts last;
      last.fill(-1);
      for (int slot = 0; slot < length_; ++slot) {
        if (row[at(slot)] != kIdle) last[at(row[at(slot)])] = slot;
      }
      last_.push_back(last);
    }
  }

  void run() {
    for (int slot = 0; slot < length_; ++slot) {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (rows_[at(rank)][at(slot)] == kIdle) fill(rank, slot);
        const SlotPass pass = rows_[at(rank)][at(slot)];
        if (pass != kIdle) settle(rank, pass, slot);
      }
    }
  }

 private:
  void settle(int rank, SlotPass pass, int slot) {
    slots_.of(rank, pass, counts_[at(rank)][at(pass)]++) = slot;
    held_[at(rank)] += takes_activation(pass) ? 1 : frees_activation(pass) ? -1 : 0;
  }

  // The first of the next passes of each kind that may run in this slot.
  void fill(int rank, int slot) {
    SlotRow& row = rows_[at(rank)];
    unsigned open = 0;
    for (SlotPass pass = 0; pass < kSlotPasses; ++pass) {
      if (last_[at(rank)][at(pass)] > slot) open |= 1U << static_cast<unsigned>(pass);
    }
    int change = 0, most_change = 0;  // of what the rank holds, between the slot and the candidate
    for (int from = slot + 1; from < length_ && open != 0; ++from) {
      const SlotPass pass = row[at(from)];
      const int peak_before = most_change;
      if (pass != kIdle) change += takes_activation(pass) ? 1 : frees_activation(pass) ? -1 : 0;
      most_change = std::max(most_change, change);
      if (pass == kIdle || (open >> static_cast<unsigned>(pass) & 1U) == 0) continue;
      open &= ~(1U << static_cast<unsigned>(pass));
      if (takes_activation(pass) && held_[at(rank)] + peak_before >= peak_) continue;
      if (!may_run(rank, pass, slot)) continue;
      row[at(slot)] = pass;
      row[at(from)] = kIdle;
      return;
    }
  }

  bool may_run(int rank, SlotPass pass, int slot) {
    const PassCounts& counts = counts_[at(rank)];
    const int k = counts[at(pass)];
    if (frees_activation(pass)) return counts[at(pass - 2)] > k;
    const int source = leg_source(ranks_, rank, pass);
    if (source >= 0) {
      const int arrives = slots_.of(source, pass, k);
      return arrives >= 0 && arrives < slot;
    }
    return pass == 0 || counts[at(pass - 1)] > k;
  }

  SlotRows& rows_;
  const int ranks_, length_, peak_;
  SlotOfPass slots_;                // settled passes
  std::vector<PassCounts> counts_;  // settled passes of each rank
  std::vector<int> held_;           // by each rank after them
  std::vector<PassCounts> last_;    // slot of each rank's last pass of each kind, as it was at first
};

}  // namespace

void fill_idle_slots(SlotRows& rows, int microbatches) { GapFiller(rows, microbatches).run(); }

bool relabel_weight_grads(SlotRows& rows, int microbatches) {
  for (SlotRow& row : rows) {
    for (const int count : count_passes(row)) {
      if (count != microbatches) return false;
    }
    std::deque<SlotPass> due;
    for (SlotPass& pass : row) {
      if (pass == 2 || pass == 3) due.push_back(static_cast<SlotPass>(pass + 2));
      if (!frees_activation(pass)) continue;
      if (due.empty()) return false;
      pass = due.front();
      due.pop_front();
    }
  }
  return true;
}

bool is_complete(const SlotRows& rows, int microbatches) {
  const int ranks = static_cast<int>(rows.size());
  SlotOfPass slots(ranks, microbatches);
  for (int rank = 0; rank < ranks; ++rank) {
    PassCounts counts{};
    for (int slot = 0; slot < static_cast<int>(rows[at(rank)].size()); ++slot) {
      const SlotPass pass = rows[at(rank)][at(slot)];
      if (pass == kIdle) continue;
      if (counts[at(pass)] >= microbatches) return false;
      slots.of(rank, pass, counts[at(pass)]++) = slot;
    }
    if (std::any_of(counts.begin(), counts.end(), [&](int count) { return count != microbatches; }))
      return false;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (int k = 0; k < microbatches; ++k) {
      for (SlotPass leg = 0; leg < kLegs; ++leg) {
        const int slot = slots.of(rank, leg, k);
        const int from = leg_source(ranks, rank, leg);
        if (from >= 0 && slots.of(from, leg, k) >= slot) return false;
        if (leg > 0 && slots.of(rank, static_cast<SlotPass>(leg - 1), k) >= slot) return false;
        if (leg >= 2 && slots.of(rank, static_cast<SlotPass>(leg + 2), k) <= slot) return false;
      }
    }
  }
  return true;
}

}  // namespace plumbline
