#include "engine/schedule/v_auto_search.h"

#include <algorithm>

#include "engine/schedule/v_fill.h"
#include "engine/schedule/v_reorder.h"
#include "engine/schedule/v_repeat.h"

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

using Block = std::vector<SlotPattern>;

// Each weight gradient into the first free slot behind its backward, around the block's end.
void place_weight_grads(SlotPattern& pattern) {
  std::array<bool, kBlockSlots> taken{};
  for (int leg = 0; leg < kLegs; ++leg) taken[at(pattern[at(leg)])] = true;
  for (const int leg : {2, 3}) {
    int slot = pattern[at(leg)];
    while (taken[at(slot)]) slot = (slot + 1) % kBlockSlots;
    taken[at(slot)] = true;
    pattern[at(leg + 2)] = slot;
  }
}

// Rows follow from the first by the steps of the down legs; false where two passes of a rank share a slot.
bool make_block(const SlotPattern& first, int down, int down_later, int change, Block& block) {
  block.front() = first;
  for (std::size_t rank = 1; rank < block.size(); ++rank) {
    const int step = static_cast<int>(rank) <= change ? down : down_later;
    SlotPattern& row = block[rank];
    std::array<bool, kBlockSlots> taken{};
    for (int leg = 0; leg < kLegs; ++leg) {
      const int slot =
          (block[rank - 1][at(leg)] + (leg_goes_down(leg) ? step : kBlockSlots - 1)) % kBlockSlots;
      if (taken[at(slot)]) return false;
      taken[at(slot)] = true;
      row[at(leg)] = slot;
    }
    place_weight_grads(row);
  }
  return true;
}

std::vector<SlotPattern> first_rows() {
  std::vector<SlotPattern> rows;
  for (int up = 1; up < kBlockSlots; ++up) {
    for (int second = 1; second < kBlockSlots; ++second) {
      for (int third = 1; third < kBlockSlots; ++third) {
        if (up == second || up == third || second == third) continue;
        SlotPattern pattern{0, up, second, third, kIdle, kIdle};
        place_weight_grads(pattern);
        rows.push_back(pattern);
      }
    }
  }
  return rows;
}

// The longest that any rank needs from its first forward to its last weight gradient, at these costs.
Nanoseconds stage_time_of(const SlotRows& rows, int microbatches, const StageCosts& costs) {
  const int ranks = static_cast<int>(rows.size());
  std::vector<std::array<std::vector<Nanoseconds>, kLegs>> end(rows.size());
  std::vector<std::array<int, kSlotPasses>> count(rows.size());
  std::vector<Nanoseconds> clock(rows.size(), 0), first(rows.size(), 0);
  for (auto& legs : end) {
    for (std::vector<Nanoseconds>& leg : legs) leg.reserve(at(microbatches));
  }
  const auto cost_of = [&](int rank, SlotPass pass) {
    const int leg = frees_activation(pass) ? pass - 2 : pass;
    const int stage = leg_stage(ranks, rank, leg);
    if (frees_activation(pass)) return entry_of(costs.weight_grad, stage);
    return leg_is_forward(leg) ? entry_of(costs.forward, stage) : input_grad_cost(costs, stage);
  };
  for (std::size_t slot = 0; slot < rows.front().size(); ++slot) {
    for (int rank = 0; rank < ranks; ++rank) {
      const SlotPass pass = rows[at(rank)][slot];
      if (pass == kIdle) continue;
      Nanoseconds start = clock[at(rank)];
      const int from = frees_activation(pass) ? -1 : leg_source(ranks, rank, pass);
      const std::size_t k = at(count[at(rank)][at(pass)]++);
      if (from >= 0) start = std::max(start, end[at(from)][at(pass)][k] + costs.hop);
      if (pass == 0 && k == 0) first[at(rank)] = start;
      clock[at(rank)] = start + cost_of(rank, pass);
      if (pass < kLegs) end[at(rank)][at(pass)].push_back(clock[at(rank)]);
    }
  }
  Nanoseconds most = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) most = std::max(most, clock[rank] - first[rank]);
  return most;
}

// Slots behind a rank's first possible one that hold nothing, of the rank with most.
int idle_slots(const SlotRows& rows) {
  int most = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    int length = 0, passes = 0;
    for (std::size_t slot = 0; slot < rows[rank].size(); ++slot) {
      if (rows[rank][slot] == kIdle) continue;
      length = static_cast<int>(slot) + 1;
      ++passes;
    }
    most = rank == 0 ? length - passes : std::max(most, length - passes - static_cast<int>(rank));
  }
  return most;
}

struct Attempt {
  bool made = false;
  int peak = 0;
  SlotRows rows;
};

class Search {
 public:
  Search(const GeneratorArgs& args, std::int64_t cap, VAutoGoal goal)
      : args_(args),
        goal_(goal),
        ranks_(args.ranks),
        microbatches_(args.microbatches),
        // The reordering of the warm-up wants 2P microbatches; what is too much is left out afterwards.
        repeated_(std::max(args.microbatches, 2 * args.ranks)),
        cap_(static_cast<int>(std::min<std::int64_t>(2 * args.ranks, cap))) {
    for (int rank = 0; rank < ranks_; ++rank) {
      Nanoseconds work = 0;
      for (const int stage : {v_stage(ranks_, rank, 0), v_stage(ranks_, rank, 1)}) {
        work += entry_of(args.costs.forward, stage) + input_grad_cost(args.costs, stage) +
                entry_of(args.costs.weight_grad, stage);
      }
      most_work_ = std::max(most_work_, work * microbatches_);
    }
  }

  VAutoResult run() {
    Block block(at(ranks_));
    for (const SlotPattern& first : first_rows()) {
      for (int down = 1; down <= 5; ++down) {
        for (int later = 1; later <= down; ++later) {
          // Where both are the same, it does not matter where they change.
          const int changes = later == down ? std::min(2, ranks_) : ranks_;
          for (int change = 1; change < changes; ++change) {
            if (!make_block(first, down, later, change, block)) continue;
            Attempt attempt = order_of(block);
            if (attempt.peak > cap_) break;  // a later change takes more
            if (attempt.made) keep(std::move(attempt));
            if (goal_ == VAutoGoal::kOrder && is_optimal()) return std::move(result_);
          }
        }
      }
    }
    return std::move(result_);
  }

 private:
  // No rank waits that does not have to: the stage time is the most that a rank has to compute.
  bool is_optimal() const { return result_.rows && result_.stage_time == most_work_; }

  void keep(Attempt attempt) {
    const int idle = idle_slots(attempt.rows);
    const auto known = result_.idle_slots_of_peak.emplace(attempt.peak, idle).first;
    known->second = std::min(known->second, idle);
    const Nanoseconds time = stage_time_of(attempt.rows, microbatches_, args_.costs);
    if (result_.rows && time >= result_.stage_time) return;
    result_.stage_time = time;
    result_.rows = std::move(attempt.rows);
  }

  Attempt order_of(const Block& block) const {
    Attempt out;
    SlotRows& rows = out.rows;
    rows = repeat_pattern(block, repeated_);
    out.peak = peak_of(rows);
    if ((microbatches_ == repeated_ && out.peak > cap_) || out.peak > 2 * ranks_) return out;
    if (!squeeze(rows, repeated_) || !reorder_warmup(rows, repeated_) || !squeeze(rows, repeated_))
      return out;
    const int peak = peak_of(rows);
    if (peak > out.peak) return out;
    if (microbatches_ < repeated_) {
      drop_surplus(rows, microbatches_);
      if (microbatches_ <= ranks_ && 2 * microbatches_ <= cap_)
        delay_first_weight_grads(rows, std::min(2 * ranks_, peak));
      if (!squeeze(rows, microbatches_)) return out;
      out.peak = peak_of(rows);
      if (out.peak > cap_) return out;
    }
    if (!reorder_cooldown(rows, microbatches_)) return out;
    fill_idle_slots(rows, microbatches_);
    if (!relabel_weight_grads(rows, microbatches_)) return out;
    const int final_peak = peak_of(rows);
    if (final_peak > out.peak) return out;
    out.peak = final_peak;
    out.made = is_complete(rows, microbatches_);
    return out;
  }

  const GeneratorArgs& args_;
  const VAutoGoal goal_;
  const int ranks_, microbatches_, repeated_, cap_;
  Nanoseconds most_work_ = 0;
  VAutoResult result_;
};

}  // namespace

VAutoResult search_v_blocks(const GeneratorArgs& args, std::int64_t cap, VAutoGoal goal) {
  return Search(args, cap, goal).run();
}

}  // namespace plumbline
