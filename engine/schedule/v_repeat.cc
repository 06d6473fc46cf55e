// Passes are kept as a table of slots, [rank][type][k]: types 0 to 3 are the legs, k the microbatch; type 4
// holds the weight gradients of both backwards, the k-th being that of the rank's k-th backward.
#include "engine/schedule/v_repeat.h"

#include <algorithm>
#include <tuple>

namespace plumbline {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

using Slots = std::vector<std::int64_t>;
using RankSlots = std::vector<Slots>;  // by type
using Table = std::vector<RankSlots>;  // by rank

constexpr int kWeightGrads = kLegs;

struct Pass {
  std::int64_t slot;
  int rank, type, k;
};

// All passes, earliest first; of one slot lower ranks first.
std::vector<Pass> passes_of(const Table& table) {
  std::vector<Pass> passes;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    for (std::size_t type = 0; type < table[rank].size(); ++type) {
      for (std::size_t k = 0; k < table[rank][type].size(); ++k) {
        passes.push_back(
            {table[rank][type][k], static_cast<int>(rank), static_cast<int>(type), static_cast<int>(k)});
      }
    }
  }
  std::sort(passes.begin(), passes.end(), [](const Pass& a, const Pass& b) {
    return std::tie(a.slot, a.rank, a.type, a.k) < std::tie(b.slot, b.rank, b.type, b.k);
  });
  return passes;
}

// Type of the pass in each slot of a rank, -1 where there is none.
std::vector<int> slot_types(const RankSlots& rank) {
  std::int64_t last = 0;
  for (const Slots& slots : rank) last = std::max(last, slots.empty() ? 0 : slots.back());
  std::vector<int> types(at(last + 1), -1);
  for (std::size_t type = 0; type < rank.size(); ++type) {
    for (const std::int64_t slot : rank[type]) types[at(slot)] = static_cast<int>(type);
  }
  return types;
}

// The legs' free slots, taken by the weight gradients that are due; what is left comes behind. In one list,
// or in one for leg 2 and one for leg 3, leg 2's first.
std::vector<Slots> free_slots_for_weight_grads(const RankSlots& legs, bool two_lists) {
  const std::vector<int> types = slot_types({legs.begin(), legs.begin() + kLegs});
  std::vector<Slots> lists(two_lists ? 2 : 1);
  int due[2] = {0, 0};
  for (std::size_t slot = 0; slot < types.size(); ++slot) {
    if (types[slot] == 2 || types[slot] == 3) ++due[two_lists ? types[slot] - 2 : 0];
    if (types[slot] >= 0) continue;
    for (std::size_t list = 0; list < lists.size(); ++list) {
      if (due[list] == 0) continue;
      lists[list].push_back(static_cast<std::int64_t>(slot));
      --due[list];
      break;
    }
  }
  std::int64_t next = static_cast<std::int64_t>(types.size());
  for (std::size_t list = 0; list < lists.size(); ++list) {
    for (; due[list] > 0; --due[list]) lists[list].push_back(next++);
  }
  return lists;
}

// Most activations a rank holds: until the weight gradient where these have slots, else until the free slot
// that one would get.
int peak_of(const RankSlots& rank) {
  const bool explicit_weight_grads = rank.size() > kLegs;
  int held = 0, most = 0, due = 0;
  for (const int type : slot_types(rank)) {
    if (type == 0 || type == 1) ++held;
    if (type == 2 || type == 3) ++due;
    if (type == kWeightGrads) --held;
    if (type < 0 && !explicit_weight_grads && due > 0) {
      --held;
      --due;
    }
    most = std::max(most, held);
  }
  return most;
}

// Pulls passes into earlier free slots of their rank where dependencies and the peak allow it.
class Tightener {
 public:
  Tightener(Table table, bool with_weight_grads)
      : table_(std::move(table)), with_weight_grads_(with_weight_grads) {
    for (const RankSlots& rank : table_) peak_ = std::max(peak_, peak_of(rank));
    backwards_.resize(table_.size());
    for (const RankSlots& rank : table_) {
      occupied_.emplace_back(slot_types(rank).size(), false);
    }
  }

  Table run() {
    const int last_microbatch = static_cast<int>(table_[0][0].size()) - 1;
    Phase phase = Phase::kWarmup;
    for (const Pass& pass : passes_of(table_)) {
      if (phase == Phase::kWarmup && pass.type == 3 && pass.rank == 0) phase = Phase::kSteady;
      const bool keep = phase == Phase::kSteady || (phase == Phase::kWarmup && !with_weight_grads_);
      if (phase == Phase::kSteady && pass.type == 0 && pass.k == last_microbatch) phase = Phase::kCooldown;
      settle(pass, keep ? pass.slot : earliest_slot(pass));
    }
    return std::move(table_);
  }

 private:
  // Up to the first microbatch's return to rank 0, up to the first rank that runs the last microbatch, the
  // rest.
  enum class Phase { kWarmup, kSteady, kCooldown };

  std::int64_t& slot_of(const Pass& pass) { return table_[at(pass.rank)][at(pass.type)][at(pass.k)]; }

  void settle(const Pass& pass, std::int64_t slot) {
    slot_of(pass) = slot;
    occupied_[at(pass.rank)][at(slot)] = true;
    if (pass.type == 2 || pass.type == 3) {
      Slots& known = backwards_[at(pass.rank)];
      known.insert(std::upper_bound(known.begin(), known.end(), slot), slot);
    }
  }

  // The last slot that the pass must lie behind.
  std::int64_t bound_of(const Pass& pass) const {
    const RankSlots& own = table_[at(pass.rank)];
    std::int64_t bound = -1;
    if (pass.type < kLegs) {
      const int from = leg_source(static_cast<int>(table_.size()), pass.rank, pass.type);
      if (from >= 0) bound = table_[at(from)][at(pass.type)][at(pass.k)];
      if (pass.type > 0) bound = std::max(bound, own[at(pass.type - 1)][at(pass.k)]);
    } else {
      bound = backwards_[at(pass.rank)][at(pass.k)];  // settled backwards are the earliest of all
    }
    if (pass.k > 0) bound = std::max(bound, own[at(pass.type)][at(pass.k - 1)]);
    return bound;
  }

  std::int64_t earliest_slot(const Pass& pass) {
    const std::vector<bool>& occupied = occupied_[at(pass.rank)];
    for (std::int64_t slot = bound_of(pass) + 1; slot < pass.slot; ++slot) {
      if (occupied[at(slot)]) continue;
      slot_of(pass) = slot;
      if (peak_of(table_[at(pass.rank)]) <= peak_) return slot;
    }
    return pass.slot;
  }

  Table table_;
  const bool with_weight_grads_;
  int peak_ = 0;
  std::vector<std::vector<bool>> occupied_;  // [rank][slot], settled passes
  std::vector<Slots> backwards_;             // per rank: slots of settled backwards, ascending
};

// Slots without the gaps that nothing needs: passes keep their order and start as early as they can.
Table squeezed(const Table& table) {
  const int ranks = static_cast<int>(table.size());
  Table out = table;
  std::vector<std::int64_t> end(table.size(), 0);
  for (const Pass& pass : passes_of(table)) {
    std::int64_t start = end[at(pass.rank)];
    if (pass.type < kLegs) {
      const int from = leg_source(ranks, pass.rank, pass.type);
      if (from >= 0) start = std::max(start, out[at(from)][at(pass.type)][at(pass.k)] + 1);
    }
    out[at(pass.rank)][at(pass.type)][at(pass.k)] = start;
    end[at(pass.rank)] = start + 1;
  }
  return out;
}

Table without_weight_grads(Table table) {
  for (RankSlots& rank : table) rank.resize(kLegs);
  return table;
}

Table with_weight_grads(Table table, bool two_lists) {
  for (RankSlots& rank : table) {
    for (Slots& list : free_slots_for_weight_grads(rank, two_lists)) rank.push_back(std::move(list));
  }
  return table;
}

std::vector<Action> row_of(const RankSlots& slots, int ranks, int rank) {
  std::vector<std::tuple<std::int64_t, int, int>> order;  // slot, type, k
  for (int type = 0; type < static_cast<int>(slots.size()); ++type) {
    for (std::size_t k = 0; k < slots[at(type)].size(); ++k)
      order.emplace_back(slots[at(type)][k], type, static_cast<int>(k));
  }
  std::sort(order.begin(), order.end());
  std::vector<Action> row;
  for (const auto& [slot, type, k] : order) {
    const int leg = type < kLegs ? type : type - 2;
    const int stage = leg_stage(ranks, rank, leg);
    row.push_back(type >= kLegs         ? weight_grad(stage, k)
                  : leg_is_forward(leg) ? forward(stage, k)
                                        : input_grad(stage, k));
  }
  return row;
}

}  // namespace

std::vector<std::vector<Action>> repeat_blocks(const std::vector<LegSlots>& block, int microbatches) {
  Table table;
  for (const LegSlots& legs : block) {
    RankSlots rank(kLegs);
    for (std::size_t leg = 0; leg < kLegs; ++leg) {
      for (std::int64_t m = 0; m < microbatches; ++m) rank[leg].push_back(legs[leg] + kBlockSlots * m);
    }
    table.push_back(std::move(rank));
  }
  // Once with weight gradients in the way, once without, so that they do not decide where the legs end up.
  table = squeezed(Tightener(with_weight_grads(std::move(table), false), true).run());
  table = Tightener(without_weight_grads(std::move(table)), false).run();
  table = squeezed(with_weight_grads(std::move(table), false));
  table = with_weight_grads(without_weight_grads(std::move(table)), true);
  std::vector<std::vector<Action>> rows;
  const int ranks = static_cast<int>(block.size());
  for (int rank = 0; rank < ranks; ++rank) rows.push_back(row_of(table[at(rank)], ranks, rank));
  return rows;
}

Result<Schedule> v_block_schedule(const GeneratorArgs& args, std::string_view name,
                                  const std::vector<LegSlots>& block) {
  Schedule schedule = begin_v_schedule(args, name, Backward::kSplit);
  for (const std::vector<Action>& row : repeat_blocks(block, args.microbatches)) schedule.add_row(row);
  return schedule;
}

}  // namespace plumbline
