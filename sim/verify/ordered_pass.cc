#include "sim/verify/ordered_pass.h"

#include <algorithm>
#include <bit>

#include "sim/verify/coverage.h"

namespace plumbline::verify {
namespace {

// A rank makes none without an item.
std::size_t most_rows(const Program& program) {
  std::size_t longest = 0;
  for (const Thread& thread : program.threads)
    longest = std::max<std::size_t>(longest, thread.end - thread.begin);
  return 2 *
         (1 + std::min(longest, program.kernels.size() + program.endpoints.size() + program.slots.size()));
}

}  // namespace

OrderedPass::OrderedPass(HostTables& tables)
    : tables_(tables),
      program_(*tables.world->program),
      streams_(static_cast<int>(program_.streams.size())),
      first_endpoint_(1 + static_cast<std::uint32_t>(program_.kernels.size())),
      first_release_(first_endpoint_ + static_cast<std::uint32_t>(program_.endpoints.size())),
      rows_(most_rows(program_)),
      row_at_(first_release_ + program_.slots.size(), rows_.data()),
      made_(rows_.data() + 2),
      computing_(program_.kernels.size()),
      quiet_(program_.kernels.size()),
      lanes_(program_.slots.size()),
      writers_(program_.slots.size()),
      words_(std::bit_ceil(static_cast<std::size_t>(program_.microbatches) + 1)),
      tally_of_(words_.size()),
      mask_(static_cast<std::uint32_t>(words_.size()) - 1) {
  numbers_[static_cast<std::size_t>(ItemOp::kLaunch)] = {1, 0xFFFF};
  numbers_[static_cast<std::size_t>(ItemOp::kOp)] = {first_endpoint_, 0xFFFF};
  numbers_[static_cast<std::size_t>(ItemOp::kFree)] = {first_release_, 0xFFFF};
  rows_[0] = rows_[1] = {kNoKey, {}, {}, {}, 0, 0, 0, kNoKey, nullptr, 0, 0, 0, 0};
  for (std::size_t c = 0; c < lanes_.size(); ++c) {
    const SlotClass& slot = program_.slots[c];
    const ClassCost cost = class_cost(slot);
    std::uint32_t bits = slot.per_microbatch ? 0u : kOfStep;
    if (slot.persistent) bits |= kPersistent;
    if (tables.sync.steps() && SyncTables::looks_at(slot.kind)) bits |= kLooksAt;
    lanes_[c] = {{cost.bytes, cost.activation_bytes}, cost.stashes * kStash, 0, 0, bits};
  }
  for (const HostVariable& variable : program_.variables) {
    if ((lanes_[variable.slot].bits & kOfStep) != 0) lanes_[variable.slot].bits |= kDecidesBy;
  }
  for (int m = 0; m < program_.microbatches; ++m)
    tally_of_[static_cast<std::size_t>(m)] = microbatch_tally(m);
  tally_of_[mask_] = microbatch_tally(kNoMicrobatch);
}

bool OrderedPass::run(std::size_t thread, RangeFacts& facts) {
  if (program_.fragment) return false;
  facts_ = &facts;
  facts.first_uses[0].reserve(8);  // two neighbours, two directions, two uses of each
  begin(thread);
  bool accepted = walk(Arm::kNone);
  if (accepted) {
    facts.operations = hot_.room_for & (kStash - 1);
    facts.first_uses[1] = facts.first_uses[0];
    accepted = hot_.next == end_ ? nothing_live() : both_arms();
  }
  if (!accepted) {
    std::fill(words_.begin(), words_.end(), 0);
    return false;
  }
  take_tallies();
  facts.sync = tables_.sync.take();
  facts.memory.peak = peak_.bytes() + persistent_bytes_;
  facts.memory.peak_activations = peak_.activations();
  facts.memory.peak_item = peak_item_ == nullptr ? -1 : static_cast<std::int64_t>(index_of(peak_item_));
  facts.memory.live_stashes = static_cast<int>(peak_stashes_);
  facts.streams = std::max(streams_, 1);
  return true;
}

// Nothing is live in `words_`.
void OrderedPass::begin(std::size_t thread) {
  ++mark_;
  step_changes_.clear();
  quiet_.clear();
  computing_.clear();
  Row* const nobody = rows_.data();
  Row** const row_at = row_at_.data();
  for (const Row* row = nobody + 2; row != made_; ++row) row_at[row->number] = nobody;
  made_ = nobody + 2;
  microbatch_lanes_ = step_lanes_ = 0;
  step_bits_ = 0;
  persistent_bytes_ = 0;
  peak_ = {};
  peak_stashes_ = 0;
  peak_item_ = nullptr;
  hot_ = {};
  hot_.next = program_.items.data() + program_.threads[thread].begin;
  host_ = {};
  host_.known = hot_.next;
  end_ = program_.items.data() + program_.threads[thread].end;
  tallies_ = tally_of_.data();
  tables_.sync.begin();
}

void OrderedPass::take_tallies() {
  facts_->tallies.reserve(computing_.size());
  for (const Row* const row : computing_) {
    if (row->tally != 0) facts_->tallies.emplace_back(row->number - 1, row->tally);
  }
}

bool OrderedPass::nothing_live() const {
  std::uint64_t any = words_[mask_];
  for (std::size_t m = 0; m < static_cast<std::size_t>(program_.microbatches); ++m) any |= words_[m];
  return any == 0;
}

bool OrderedPass::both_arms() {
  const Hot before = hot_;
  const HostWaits host_before = host_;
  const Footprint peak_before = peak_;
  const std::int64_t peak_stashes_before = peak_stashes_;
  for (const Item* item = before.next; item != end_; ++item)
    facts_->operations += tables_.counts(*item) ? 1 : 0;
  words_before_ = words_;
  const ScratchVector<std::uint32_t> writers = writers_;
  const ScratchVector<std::uint64_t> zeros(words_.size());
  tallies_ = zeros.data();
  if (!walk(Arm::kYes) || !nothing_live()) return false;
  std::swap(words_, words_before_);
  writers_ = writers;
  hot_ = before;
  hot_.room += peak_;  // it is higher by now
  hot_.room -= peak_before;
  hot_.room_for += (peak_stashes_ - peak_stashes_before) * kStash;
  host_ = host_before;
  tallies_ = tally_of_.data();
  forget_uses();  // as the general pass does: connections of the common part are listed again
  return walk(Arm::kNo) && nothing_live();
}

// Of the arm that was tried: what it has met is to be met again.
void OrderedPass::forget_uses() {
  for (Row* row = rows_.data() + 2; row != made_; ++row) {
    row->key = row->entry_key = kNoKey;
    row->bits &= ~(kSeen | kSeenArmed);
  }
}

// The slots are as they must be, and change.
[[gnu::always_inline]] inline bool OrderedPass::apply(Hot& hot, const Places& places, Row& row, Item item) {
  row.tally += places.tallies[static_cast<std::uint32_t>(item) & places.mask];
  std::uint64_t& slots = places.word(item, row);
  const std::uint64_t before = slots;
  if ((before & row.slots.care) != row.slots.want) return false;
  slots = before ^ row.slots.flip;
  take_room(hot, row, hot.next);
  hot.room += row.losses;
  hot.room_for += row.gives;
  return true;
}

[[gnu::always_inline]] inline void OrderedPass::take_room(Hot& hot, const Row& row, const Item* at) {
  hot.room_for -= row.takes;
  if (hot.room_for < 0) [[unlikely]] {
    peak_stashes_ -= hot.room_for >> 32;
    hot.room_for &= kStash - 1;
  }
  hot.room -= row.gains;
  if (hot.room.overdrawn()) [[unlikely]] {
    if (hot.room.bytes() < 0) peak_item_ = at;
    peak_ += hot.room.settle();
  }
}

bool OrderedPass::walk(Arm arm) {
  arm_ = arm;
  skip_ = arm == Arm::kNone ? 0 : skipped_flags(arm);
  uses_ = &facts_->first_uses[arm == Arm::kNo ? 1 : 0];
  const Places at = places();
  const Item* const end = end_;
  Hot hot{hot_.room, hot_.next, hot_.room_for};
  for (; hot.next != end; ++hot.next) {
    const Item item = *hot.next;
    Row* row = at.rows[number_of(item)];
    if (row->key != key_of(item)) [[unlikely]] {
      if (is_followed(item)) {
        if (!group(hot, at, row + 1)) return false;
        continue;
      }
      row = prepare(*row, hot.next);
      if (row == nullptr) break;
    }
    if (!apply(hot, at, *row, item)) return false;
  }
  hot_ = {hot.room, hot.next, hot.room_for};
  return hot.next == end || (arm == Arm::kNone && item_op(*hot.next) == ItemOp::kDecide);
}

// Of several operations. What dies, dies after the last.
[[gnu::always_inline]] inline bool OrderedPass::group(Hot& hot, const Places& places, Row* row) {
  const Item* const first = hot.next;
  if (arm_ != Arm::kNone) {
    hot.next = skip_group(first);
    if (hot.next != first) return true;
  }
  Item item = *first;
  if (row->entry_key != key_of(item)) [[unlikely]] {
    row = item_op(item) == ItemOp::kOp ? entry(*row, first, first) : nullptr;
    if (row == nullptr) return false;
  }
  std::uint32_t any = 0;
  while (true) {
    std::uint64_t& slots = places.word(item, *row);
    const std::uint64_t before = slots;
    if ((before & row->slots.care) != row->slots.want) return false;
    slots = before ^ row->slots.flip;
    take_room(hot, *row, hot.next);
    if (!is_followed(item)) break;
    any |= row->bits;
    item = *++hot.next;
    Row* next = row->next;
    if (next->entry_key != key_of(item)) [[unlikely]] {
      next = link(row, hot.next, first);
      if (next == nullptr) return false;
    }
    row = next;
  }
  hot.room += row->losses;
  hot.room_for += row->gives;
  return (any & kFreeAfter) == 0 || release_after(hot, places, first, hot.next);
}

// In an arm: the last item of the group if it is not of this arm, else the first.
const Item* OrderedPass::skip_group(const Item* first) {
  const Item* last = first;
  while (is_followed(*last)) ++last;
  return (item_flags(*last) & skip_) != 0 ? last : first;
}

// Of entries that others follow.
[[gnu::always_inline]] inline bool OrderedPass::release_after(Hot& hot, const Places& places,
                                                              const Item* first, const Item* last) {
  for (const Item* at = first; at != last; ++at) {
    const Row& row = places.rows[first_endpoint_ + item_ref(*at)][1];
    if ((row.bits & kFreeAfter) == 0) continue;
    std::uint64_t& slots = places.word(*at, row);
    if ((slots & row.slots.care) == 0) return false;
    slots &= ~row.slots.care;
    hot.room += row.losses;
    hot.room_for += row.gives;
  }
  return true;
}

}  // namespace plumbline::verify
