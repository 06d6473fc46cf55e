// 1F1B-V: the V of controllable memory with whole backwards. Three quarters of 1F1B's memory, no split
// needed.
//
//   P = 2, V = 2, M = 3, a backward takes two steps
//   (0..2 forward, a..c backward of the same microbatches, ' marks the second chunk, . idle)
//
//   rank 0   0  1  2  0' a' a' 1' b' b' .  a  a  2' c' c' .  b  b  .  .  c  c
//   rank 1   .  0  0' 1  1' .  a' a' a  a  2  2' b' b' b  b  c' c' c  c  .  .
//
// Block    the two forwards and the two backwards of a microbatch, backwards two slots long, at the slots
//          below modulo six; repeated, then passes are pulled forward into free slots as far as the peak
//          allows.
// Bubble   no formula; unit costs (F = I = W = 1): makespan 39 at P = 4, M = 4; 111 at P = 4, M = 16; 81 at
//          P = 8, M = 8.
// Memory   6 live chunk activations at P = 4, 12 at P = 8: three quarters of 1F1B's 2P.
// Source   Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362;
//          sail-sg/zero-bubble-pipeline-parallelism, scheduler/v1f1b.py.
#include <algorithm>

#include "engine/schedule/v_repeat.h"
#include "engine/schedule/v_slots.h"

namespace plumbline {
namespace {

constexpr const char* kName = "1f1b-v";

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Legs 0 and 1 follow each other slot by slot. Backwards take two slots a rank, with three free ones after
// every third, so that the slots of all legs stay apart.
std::vector<SlotPattern> block_of(int ranks) {
  std::vector<SlotPattern> pattern(at(ranks));
  int slot = 0;
  for (int rank = 0; rank < ranks; ++rank) pattern[at(rank)][0] = ++slot;
  for (int rank = ranks - 1; rank >= 0; --rank) pattern[at(rank)][1] = ++slot;
  ++slot;
  if (ranks % 3 == 0) slot += 3;
  int in_row = (3 - (ranks + 2) % 3) % 3;
  const auto place = [&](int rank, int leg) {
    pattern[at(rank)][at(leg)] = slot;
    pattern[at(rank)][at(leg + 2)] = slot + 1;
    slot += 2;
    if (++in_row < 3) return;
    in_row = 0;
    slot += 3;
  };
  for (int rank = 0; rank < ranks; ++rank) place(rank, 2);
  for (int rank = ranks - 1; rank >= 0; --rank) place(rank, 3);
  for (SlotPattern& row : pattern) {
    for (int& position : row) position %= kBlockSlots;
  }
  return pattern;
}

// Pulls every pass into an earlier free slot: backwards as far as their input allows (two slots, their
// second half is the weight gradient's), forwards only over slots where the rank holds less than the peak.
class Puller {
 public:
  explicit Puller(SlotRows rows)
      : rows_(std::move(rows)), ranks_(static_cast<int>(rows_.size())), peak_(peak_of(rows_)) {
    for (const SlotRow& row : rows_) {
      std::vector<int> held(row.size());
      int now = 0;
      for (std::size_t slot = 0; slot < row.size(); ++slot) {
        now += takes_activation(row[slot]) ? 1 : frees_activation(row[slot]) ? -1 : 0;
        held[slot] = now;
      }
      held_.push_back(std::move(held));
      slots_.emplace_back();
    }
  }

  SlotRows run() {
    const int length = static_cast<int>(rows_.front().size());
    for (int slot = 0; slot < length; ++slot) {
      for (int rank = 0; rank < ranks_; ++rank) {
        const SlotPass pass = rows_[at(rank)][at(slot)];
        if (pass != kIdle) slots_[at(rank)][at(pass)].push_back(pull(rank, pass, slot));
      }
    }
    return std::move(rows_);
  }

 private:
  int slot_of(int rank, SlotPass pass, std::size_t k) const { return slots_[at(rank)][at(pass)][k]; }

  // The slot that this pass must lie behind, -1 if none. A backward's input is there once the whole
  // backward is done.
  int bound_of(int rank, SlotPass pass) const {
    const std::size_t k = slots_[at(rank)][at(pass)].size();
    int bound = k > 0 ? slot_of(rank, pass, k - 1) : -1;
    if (frees_activation(pass)) return std::max(bound, slot_of(rank, static_cast<SlotPass>(pass - 2), k));
    const int from = leg_source(ranks_, rank, pass);
    const SlotPass done = static_cast<SlotPass>(leg_is_forward(pass) ? pass : pass + 2);
    if (from >= 0) return std::max(bound, slot_of(from, done, k));
    if (pass == 0) return bound;
    return std::max(bound, slot_of(rank, pass == 3 ? kWeightOf2 : static_cast<SlotPass>(pass - 1), k));
  }

  int pull(int rank, SlotPass pass, int slot) {
    SlotRow& row = rows_[at(rank)];
    std::vector<int>& held = held_[at(rank)];
    int to = bound_of(rank, pass) + 1;
    while (to < slot && row[at(to)] != kIdle) ++to;
    if (pass == 2 || pass == 3) {
      while (to < slot && (row[at(to)] != kIdle || row[at(to + 1)] != kIdle)) ++to;
    }
    if (to < slot && takes_activation(pass)) {
      int place = slot;
      while (place > to && held[at(place - 1)] < peak_) --place;
      while (place < slot && row[at(place)] != kIdle) ++place;
      to = place;
    }
    if (to >= slot) return slot;
    std::swap(row[at(to)], row[at(slot)]);
    const int change = takes_activation(pass) ? 1 : frees_activation(pass) ? -1 : 0;
    for (int between = to; between < slot; ++between) held[at(between)] += change;
    return to;
  }

  SlotRows rows_;
  const int ranks_;
  const int peak_;
  std::vector<std::vector<int>> held_;                            // [rank][slot]
  std::vector<std::array<std::vector<int>, kSlotPasses>> slots_;  // [rank][pass][k]
};

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, kName));
  const SlotRows rows = Puller(repeat_pattern(block_of(args.ranks), args.microbatches)).run();
  Schedule schedule = begin_v_schedule(args, kName, Backward::kWhole);
  for (int rank = 0; rank < args.ranks; ++rank) {
    schedule.add_row(actions_of(rows[at(rank)], args.ranks, rank, Backward::kWhole));
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_one_f_one_b_v{Generator{
    .name = kName,
    .summary = "a V with whole backwards: three quarters of 1F1B's memory",
    .constraints = "two chunks a rank; M >= 1",
    .bubble = "no formula; evaluate it for the costs at hand",
    .memory = "about 3P/2 chunks on the fullest rank",
    .source = "arXiv 2405.15362 (Pipeline Parallelism with Controllable Memory); sail-sg v1f1b.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline
