// What an OrderedPass does where an item's kind is not known yet: rows, first uses, and what check_gradient_sync and
// decisions are to be told.
#include <algorithm>

#include "sim/verify/ordered_pass.h"

namespace plumbline::verify {

// For an item whose kind is not known to be plain, or never is: the row to be applied. Null: declined, or the first
// decision.
OrderedPass::Row* OrderedPass::prepare(Row& row, const Item* at) {
  if ((item_flags(*at) & skip_) != 0) return rows_.data();
  if (item_op(*at) == ItemOp::kLaunch) return launch(row, at);
  if (item_op(*at) == ItemOp::kOp) return entry(row, at, at);
  return step(row, at);
}

OrderedPass::Row* OrderedPass::step(Row& row, const Item* at) {
  Row* const nothing = rows_.data();
  const Item item = *at;
  switch (item_op(item)) {
    case ItemOp::kFree: {
      Row& release = row.number != 0 ? row : fresh_release(item_ref(item));
      release.key = key_of(item);
      return &release;
    }
    case ItemOp::kSyncStream:  // host_waited() looks at it when it matters
      return item_stream(item) == kComputeStream ? nothing : nullptr;
    case ItemOp::kSyncDevice:
    case ItemOp::kMark:
      return nothing;
    case ItemOp::kRead:
      return reads(item) ? nothing : nullptr;
    case ItemOp::kDecide:
      return arm_ != Arm::kNone && decide(at) ? nothing : nullptr;
    default:
      return nullptr;  // handles and events: streams may run apart
  }
}

OrderedPass::Row* OrderedPass::launch(Row& known, const Item* at) {
  const unsigned kernel = item_ref(*at);
  Row& row = known.number != 0 ? known : fresh_kernel(kernel);
  if (item_stream(*at) != kComputeStream) return nullptr;
  if ((row.bits & kSyncs) != 0 && arm_ != Arm::kYes) note_launch(kernel, row, at);
  if ((row.bits & kNeverPlain) == 0) {
    row.key = key_of(*at);
  } else if ((row.bits & (kTwoScopes | kDecides)) != 0 && !change_step(row, kernel, at)) {
    return nullptr;
  }
  return &row;
}

// The row of an entry that the one before it does not lead to yet. Null: declined.
OrderedPass::Row* OrderedPass::link(Row* before, const Item* at, const Item* first) {
  const Item item = *at;
  Row* row = &entry_row(item);
  if (row->entry_key != key_of(item)) row = item_op(item) == ItemOp::kOp ? entry(*row, at, first) : nullptr;
  if (row == nullptr) return nullptr;
  before->next = row;
  if (((row->bits ^ before->bits) & kGroupKey) != 0 || (row->bits & kPairs) != 0) facts_->mixed_groups = true;
  return row;
}

// The row of an entry of a group whose kind is not known to be in order, or that is never plain. Null: declined.
OrderedPass::Row* OrderedPass::entry(Row& known, const Item* at, const Item* first) {
  const Item item = *at;
  Row& row = known.number != 0 ? known : fresh_endpoint(known, at, first);
  if (arm_ != Arm::kNone) use_in_arm(row, at, first);
  const bool is_last = !is_followed(item);
  if (is_last && !ends_in_order(item)) return nullptr;
  if ((row.bits & kNeverPlain) != 0) {
    note_entry(row, at);
    return &row;
  }
  row.entry_key = key_of(item);
  if (is_last) row.key = key_of(item);
  return &row;
}

[[gnu::always_inline]] inline bool OrderedPass::ends_in_order(Item last) const {
  const unsigned flags = item_flags(last);
  return (flags & (kAfterCompute | kHandle)) == kAfterCompute &&
         (flags & (kComputeWaits | kHostWaits)) != 0 && item_stream(last) < streams_;
}

// What a launch adds for check_gradient_sync.
[[gnu::always_inline]] inline void OrderedPass::note_launch(unsigned kernel, Row& row, const Item* at) {
  const std::size_t before = tables_.sync.happened();
  const bool has_effect = tables_.sync.launch(kernel, index_of(at));
  if (tables_.sync.happened() != before) wake();
  if (has_effect && (row.bits & kRepeats) == 0) return;
  row.bits &= ~kSyncs;
  if (has_effect) quiet_.push(&row);
}

// Something has happened, so that a repeated effect may be none.
void OrderedPass::wake() {
  for (Row* const row : quiet_) {
    row->bits |= kSyncs;
    row->key = kNoKey;
  }
  quiet_.clear();
}

// What a launch does to slots of step scope beside those of its microbatch, and to what decisions are by.
bool OrderedPass::change_step(const Row& row, unsigned kernel, const Item* at) {
  if ((row.bits & kTwoScopes) != 0) {
    const Change& change = step_changes_[row.change];
    std::uint64_t& slots = words_[mask_];
    if ((slots & change.care) != change.want) return false;
    slots ^= change.flip;
  }
  if ((row.bits & kDecides) == 0) return true;
  for (const std::uint16_t slot : program_.kernels[kernel].writes) {
    if ((lanes_[slot].bits & kDecidesBy) != 0) writers_[slot] = index_of(at) + 1;
  }
  return true;
}

void OrderedPass::note_entry(const Row& row, const Item* at) {
  const unsigned endpoint = item_ref(*at);
  if ((row.bits & kDecides) != 0) writers_[program_.endpoints[endpoint].slot] = index_of(at) + 1;
  if ((row.bits & kSyncs) == 0 || arm_ == Arm::kYes) return;
  const std::size_t before = tables_.sync.happened();
  tables_.sync.operation(endpoint, index_of(at));
  if (tables_.sync.happened() != before) wake();
}

void OrderedPass::use_in_arm(Row& row, const Item* at, const Item* first) {
  const std::uint32_t bits = row.bits | (is_followed(*at) ? &row - 1 : &row + 1)->bits;
  if ((item_flags(*at) & (kArmYes | kArmNo)) != 0 && (bits & kSeenArmed) == 0) {
    row.bits |= kSeenArmed;
    facts_->armed.push_back(index_of(at));
  }
  if ((bits & kSeen) != 0) return;
  row.bits |= kSeen;
  if ((bits & kP2p) != 0) use(at, first);
}

[[gnu::always_inline]] inline void OrderedPass::use(const Item* at, const Item* first) {
  uses_->push_back({index_of(at), index_of(first), host_waited(first), false});
}

// FirstUse::need of a group that begins at `now`. Looked up from there backwards, and not further than at the last
// call: what is not found behind that group's begin was known there.
[[gnu::always_inline]] inline std::uint32_t OrderedPass::host_waited(const Item* now) {
  constexpr auto bit = [](ItemOp op) { return 1u << static_cast<unsigned>(op); };
  constexpr unsigned kWaits = bit(ItemOp::kSyncStream) | bit(ItemOp::kSyncDevice) | bit(ItemOp::kRead);
  const Item* wait = nullptr;  // for all groups before
  const Item* until = nullptr;
  for (const Item* at = now; at != host_.known && until == nullptr;) {
    const Item item = *--at;
    const unsigned op = bit(item_op(item)), flags = item_flags(item);
    if ((op & (kWaits | bit(ItemOp::kOp))) == 0 || (flags & (kMore | skip_)) != 0) continue;
    if ((op & kWaits) != 0) {
      wait = wait == nullptr ? at : wait;
    } else if (wait != nullptr || (flags & kHostWaits) != 0) {
      until = at;
    }
  }
  if (until == nullptr) until = wait;  // with no group before
  if (until != nullptr) host_.waited = index_of(until) + 1;
  host_.known = now;
  return host_.waited;
}

bool OrderedPass::reads(Item item) {
  const Lane& of = lane(program_.variables[item_ref(item)].slot);
  const std::uint64_t slots = words_[(static_cast<std::uint32_t>(item) | of.scope()) & mask_];
  return (of.bits & kImpossible) == 0 && (slots & of.bit) == of.bit;
}

bool OrderedPass::decide(const Item* at) {
  const unsigned slot_class = program_.variables[item_ref(*at)].slot;
  const Lane& of = lane(slot_class);
  if ((of.bits & kImpossible) != 0 || (of.bits & kDecidesBy) == 0) return false;
  const bool is_live = of.bit == 0 || (words_[mask_] & of.bit) != 0;
  const std::uint32_t writer = is_live && writers_[slot_class] != 0 ? writers_[slot_class] - 1 : kNone32;
  if (arm_ == Arm::kYes) facts_->decisions.push_back({index_of(at), writer});
  return true;
}

void OrderedPass::open_lane(Lane& lane) {
  const auto slot_class = static_cast<std::size_t>(&lane - lanes_.data());
  lane.mark = mark_;
  if ((lane.bits & kDecidesBy) != 0) writers_[slot_class] = 0;
  if ((lane.bits & kPersistent) != 0) {
    persistent_bytes_ += program_.slots[slot_class].bytes;
    return;
  }
  lane.bits &= ~kImpossible;
  if (microbatch_lanes_ + step_lanes_ == kLanes64) {
    lane.bits |= kImpossible;
    lane.bit = 0;
  } else if ((lane.bits & kOfStep) != 0) {
    lane.bit = std::uint64_t{1} << (kLanes64 - ++step_lanes_);
    step_bits_ |= lane.bit;
  } else {
    lane.bit = std::uint64_t{1} << microbatch_lanes_++;
  }
}

[[gnu::always_inline]] inline OrderedPass::Row& OrderedPass::fresh_row(std::uint32_t number) {
  row_at_[number] = made_;
  return begin_row(*made_++, number);
}

[[gnu::always_inline]] inline OrderedPass::Row& OrderedPass::begin_row(Row& row, std::uint32_t number) {
  row.key = row.entry_key = kNoKey;
  row.slots = {};
  row.gains = row.losses = {};
  row.tally = 0;
  row.takes = row.gives = 0;
  row.scope = row.bits = 0;
  row.number = number;
  return row;
}

// A slot read stays live, one written was not live before (in place: was and stays), one freed was live.
// Anything else about a slot is for the general pass to explain.
[[gnu::always_inline]] inline OrderedPass::Row& OrderedPass::fresh_kernel(unsigned number) {
  const Kernel& kernel = program_.kernels[number];
  Row& row = fresh_row(1 + number);
  std::uint32_t bits = 0, freed = 0;
  std::uint64_t twice = 0;  // written twice, or written and freed
  for (const std::uint16_t slot : kernel.reads) {
    const Lane& of = lane(slot);
    bits |= of.bits;
    row.slots.want |= of.bit;
  }
  for (const std::uint16_t slot : kernel.writes) {
    const Lane& of = lane(slot);
    bits |= of.bits;
    if ((of.bit & (row.slots.want | row.slots.flip)) != 0) [[unlikely]] {  // in place, or twice
      twice |= of.bit & row.slots.flip;
      continue;
    }
    row.slots.flip |= of.bit;
    row.gains += of.cost;
    row.takes += of.stashes;
  }
  for (const std::uint16_t slot : kernel.frees) {
    const Lane& of = lane(slot);
    freed |= of.bits;
    twice |= of.bit & row.slots.flip;
    row.slots.want |= of.bit;
    row.slots.flip |= of.bit;
    row.losses += of.cost;
    row.gives += of.stashes;
  }
  row.slots.care = row.slots.want | row.slots.flip;
  bits |= freed;
  if (is_computation(kernel.kind)) {
    --row.takes;
    row.bits |= kRepeats;
    computing_.push(&row);
  }
  if ((bits & kLooksAt) != 0 && SyncTables::looks_at(kernel.kind)) row.bits |= kSyncs;
  if ((row.slots.care & step_bits_) != 0) split(row);
  if ((bits & kDecidesBy) != 0 && writes_decision(kernel)) row.bits |= kDecides;
  if (twice != 0 || ((bits & kImpossible) | (freed & kPersistent)) != 0) row.slots = {0, 1, 0};
  return row;
}

bool OrderedPass::writes_decision(const Kernel& kernel) const {
  return std::any_of(kernel.writes.begin(), kernel.writes.end(),
                     [&](std::uint16_t slot) { return (lanes_[slot].bits & kDecidesBy) != 0; });
}

// Slots of step scope apart from those of the microbatch.
void OrderedPass::split(Row& row) {
  const Change& all = row.slots;
  if ((all.care & ~step_bits_) == 0) {
    row.scope = ~0u;
    return;
  }
  row.bits |= kTwoScopes;
  row.change = static_cast<std::uint32_t>(step_changes_.size());
  step_changes_.push_back({all.care & step_bits_, all.want & step_bits_, all.flip & step_bits_});
  row.slots = {all.care & ~step_bits_, all.want & ~step_bits_, all.flip & ~step_bits_};
}

// `known` is nobody's, or has its place beside its twin. A connection's first use is put down.
[[gnu::always_inline]] inline OrderedPass::Row& OrderedPass::fresh_endpoint(Row& known, const Item* at,
                                                                            const Item* first) {
  const bool followed = is_followed(*at);
  if (&known >= rows_.data() + 2) {
    known = (&known)[followed ? -1 : 1];
    known.key = known.entry_key = kNoKey;
    if ((known.bits & kFreeAfter) != 0) known.slots.flip ^= known.slots.care;
    return known;
  }
  const Endpoint& endpoint = program_.endpoints[item_ref(*at)];
  const bool p2p = is_p2p(endpoint.kind);
  Row& twin = made_[followed ? 0 : 1];
  twin.key = twin.entry_key = kNoKey;
  twin.bits = twin.number = 0;
  const std::uint32_t number = first_endpoint_ + item_ref(*at);
  Row& row = begin_row(made_[followed ? 1 : 0], number);
  row_at_[number] = made_;
  made_ += 2;
  row.next = rows_.data();
  row.bits = std::uint32_t{endpoint.family} * 2 + (p2p ? kP2p + 1 : 0u);
  row.takes = -1;
  if (program_.families[endpoint.family].pairs) row.bits |= kPairs;
  if (arm_ == Arm::kNone) {
    row.bits |= kSeen;
    if (p2p) use(at, first);
  }
  if (!p2p) {
    if ((lanes_[endpoint.slot].bits & kLooksAt) != 0) row.bits |= kSyncs;
    if (endpoint.bytes == 0) return row;  // does nothing (N60)
  }
  const Lane& of = lane(endpoint.slot);
  const std::uint64_t bit = of.bit;
  row.scope = of.scope();
  row.slots.care = bit;
  // A broadcast into a slot that is not live yet is left to the general pass.
  if (endpoint.kind == EndpointKind::kRecv) {
    row.slots.flip = bit;
    row.gains = of.cost;
    row.takes += of.stashes;
  } else {
    row.slots.want = bit;
  }
  if (endpoint.kind != EndpointKind::kSend && (of.bits & kDecidesBy) != 0) row.bits |= kDecides;
  if (endpoint.free_after) {
    row.bits |= kFreeAfter;
    if (!followed) row.slots.flip ^= bit;
    row.losses = of.cost;
    row.gives = of.stashes;
  }
  if ((of.bits & kImpossible) != 0 || ((of.bits & kPersistent) != 0 && endpoint.free_after))
    row.slots = {0, 1, 0};
  return row;
}

OrderedPass::Row& OrderedPass::fresh_release(unsigned slot_class) {
  Row& row = fresh_row(first_release_ + slot_class);
  const Lane& of = lane(slot_class);
  row.slots = {of.bit, of.bit, of.bit};
  if (of.bit == 0) row.slots = {0, 1, 0};
  row.scope = of.scope();
  row.losses = of.cost;
  row.gives = of.stashes;
  return row;
}

}  // namespace plumbline::verify
