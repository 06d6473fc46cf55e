#include "sim/verify/ordered_pass.h"

#include <algorithm>

#include "sim/verify/coverage.h"

namespace plumbline::verify {

OrderedPass::OrderedPass(HostTables& tables)
    : tables_(tables),
      program_(*tables.world->program),
      first_endpoint_(static_cast<std::uint32_t>(program_.kernels.size())),
      first_release_(first_endpoint_ + static_cast<std::uint32_t>(program_.endpoints.size())),
      rows_(1 + first_release_ + program_.slots.size()),
      row_at_(rows_.size()),
      lanes_(program_.slots.size()),
      writers_(program_.slots.size()),
      words_(static_cast<std::size_t>(program_.microbatches) + 1),
      tally_of_(words_.size()),
      step_word_(static_cast<std::uint32_t>(program_.microbatches)) {
  for (std::size_t c = 0; c < lanes_.size(); ++c) {
    const ClassCost& cost = tables.costs[c];
    lanes_[c].cost = {cost.bytes, cost.activation_bytes};
    lanes_[c].stashes = cost.stashes;
    lanes_[c].scope = program_.slots[c].per_microbatch ? 0 : step_word_;
    lanes_[c].persistent = program_.slots[c].persistent;
  }
  for (const HostVariable& variable : program_.variables)
    lanes_[variable.slot].decides = !program_.slots[variable.slot].per_microbatch;
  for (std::uint32_t m = 0; m < step_word_; ++m) tally_of_[m] = microbatch_tally(static_cast<int>(m));
  tally_of_[step_word_] = microbatch_tally(kNoMicrobatch);
}

bool OrderedPass::run(std::size_t thread, RangeFacts& facts) {
  if (program_.fragment) return false;
  facts_ = &facts;
  facts.first_uses[0].reserve(8);  // two neighbours, two directions, two uses of each
  begin(thread);
  bool accepted = walk<false>(Arm::kNone);
  if (accepted) {
    facts.operations = hot_.next - begin_ - hot_.others;
    facts.first_uses[1] = facts.first_uses[0];
    accepted = hot_.next == end_ ? nothing_live() : both_arms();
  }
  take_tallies();
  if (!accepted) return false;
  facts.sync = tables_.sync.take();
  facts.memory.peak = peak_.bytes() + persistent_bytes_;
  facts.memory.peak_activations = peak_.activations();
  facts.memory.peak_item = peak_item_;
  facts.memory.live_stashes = peak_stashes_;
  facts.streams = std::max<int>(static_cast<int>(program_.streams.size()), 1);
  return true;
}

void OrderedPass::begin(std::size_t thread) {
  ++mark_;
  ++tables_.mark;
  std::fill(words_.begin(), words_.end(), 0);
  step_changes_.clear();
  while (made_ > 1) row_at_[rows_[--made_].number] = 0;
  microbatch_lanes_ = step_lanes_ = 0;
  persistent_bytes_ = 0;
  arm_ = Arm::kNone;
  begin_ = program_.threads[thread].begin;
  end_ = program_.threads[thread].end;
  peak_ = {};
  peak_stashes_ = 0;
  peak_item_ = -1;
  hot_ = {};
  hot_.next = begin_;
  tables_.sync.begin();
  hot_.quiet = tables_.sync.happened();
}

void OrderedPass::take_tallies() {
  facts_->tallies.reserve(tables_.tallied.size());
  for (const std::uint32_t kernel : tables_.tallied) {
    const std::uint64_t tally = row_of(kernel).tally;
    if (tally != 0) facts_->tallies.emplace_back(kernel, tally);
  }
  tables_.tallied.clear();
}

bool OrderedPass::nothing_live() const {
  std::uint64_t any = 0;
  for (const std::uint64_t word : words_) any |= word;
  return any == 0;
}

bool OrderedPass::both_arms() {
  const Hot before = hot_;
  for (std::uint32_t i = before.next; i < end_; ++i)
    facts_->operations += tables_.counts(program_.items[i]) ? 1 : 0;
  words_before_ = words_;
  const ScratchVector<std::uint32_t> writers = writers_;
  if (!walk<true>(Arm::kYes) || !nothing_live()) return false;
  std::swap(words_, words_before_);
  writers_ = writers;
  hot_ = before;
  ++tables_.mark;  // as the general pass does: connections of the common part are listed again
  return walk<true>(Arm::kNo) && nothing_live();
}

template <bool kInArm>
bool OrderedPass::walk(Arm arm) {
  arm_ = arm;
  const unsigned skip = kInArm ? skipped_flags(arm) : 0;  // no item is in an arm before the decision
  Hot hot = hot_;
  while (hot.next < end_) {
    const Item item = program_.items[hot.next];
    const ItemOp op = item_op(item);
    if (op == ItemOp::kOp) {
      if (!group<kInArm>(hot, item)) return false;
      continue;
    }
    if (!kInArm || (item_flags(item) & skip) == 0) {
      if (op == ItemOp::kLaunch) {
        if (!launch<kInArm>(hot, item)) return false;
      } else if (op == ItemOp::kFree) {
        if (!release(hot, item)) return false;
      } else if (!kInArm && op == ItemOp::kDecide) {
        break;
      } else {
        hot_ = hot;
        if (!step(item)) return false;
        hot = hot_;
        ++hot.others;
      }
    }
    ++hot.next;
  }
  hot_ = hot;
  return true;
}

// For everything so far.
void OrderedPass::host_waits() { hot_.host_group = hot_.last_group != 0 ? hot_.last_group : hot_.next + 1; }

bool OrderedPass::step(Item item) {
  switch (item_op(item)) {
    case ItemOp::kSyncStream:
      if (item_stream(item) != kComputeStream) return false;
      [[fallthrough]];
    case ItemOp::kSyncDevice:
      host_waits();
      return true;
    case ItemOp::kRead: {
      const Lane& of = lane(program_.variables[item_ref(item)].slot);
      host_waits();
      return !of.impossible && (words_[std::max(place_of(item), of.scope)] & of.bit) == of.bit;
    }
    case ItemOp::kDecide:
      return decide(item);
    case ItemOp::kMark:
      return true;
    default:
      return false;  // handles and events: streams may run apart
  }
}

// The slots are as they must be, and change.
[[gnu::always_inline]] inline bool OrderedPass::touch(Hot& hot, const Row& row, std::uint32_t place,
                                                      std::uint32_t at) {
  std::uint64_t& slots = word(row, place);
  const std::uint64_t before = slots;
  if ((before & row.slots.care) != row.slots.want) return false;
  slots = before ^ row.slots.flip;
  hot.live += row.gains;
  hot.stashes += row.new_stashes;
  if (hot.live.exceeds(peak_) || hot.stashes > peak_stashes_) [[unlikely]]
    new_peak(hot.live, hot.stashes, at);
  return true;
}

void OrderedPass::new_peak(Footprint live, std::int32_t stashes, std::uint32_t item) {
  if (live.bytes() > peak_.bytes()) peak_item_ = item;
  peak_.raise(live);
  peak_stashes_ = std::max(peak_stashes_, stashes);
}

template <bool kInArm>
[[gnu::always_inline]] inline bool OrderedPass::launch(Hot& hot, Item item) {
  const unsigned kernel = item_ref(item);
  Row& row = row_at_[kernel] != 0 ? row_of(kernel) : fresh_kernel(kernel);
  if (row.quiet != hot.quiet) hot.quiet = note_launch(kernel, row, hot.next);
  const std::uint32_t place = place_of(item);
  if (!kInArm || arm_ == Arm::kNo) row.tally += tally_of_[place];
  if (item_stream(item) != kComputeStream || !touch(hot, row, place, hot.next)) return false;
  hot.live -= row.losses;
  hot.stashes -= row.old_stashes;
  if ((row.bits & (kNoOperation | kTwoScopes | kDecides)) == 0) return true;
  hot.others += (row.bits & kNoOperation) != 0 ? 1 : 0;
  return change_step(row, kernel, hot.next);
}

[[gnu::always_inline]] inline bool OrderedPass::release(Hot& hot, Item item) {
  const std::size_t number = first_release_ + item_ref(item);
  const Row& row = row_at_[number] != 0 ? row_of(number) : fresh_release(item_ref(item));
  std::uint64_t& slots = word(row, place_of(item));
  if ((slots & row.slots.care) != row.slots.want) return false;
  slots ^= row.slots.flip;
  hot.live -= row.losses;
  hot.stashes -= row.old_stashes;
  ++hot.others;
  return true;
}

template <bool kInArm>
[[gnu::always_inline]] inline const OrderedPass::Row& OrderedPass::entry(const Hot& hot, Item item,
                                                                         std::uint32_t first) {
  const std::size_t number = first_endpoint_ + item_ref(item);
  if (!kInArm && row_at_[number] != 0) return row_of(number);
  return used_endpoint(item_ref(item), hot.next, first, hot.host_group);
}

template <bool kInArm>
[[gnu::always_inline]] inline bool OrderedPass::group(Hot& hot, Item item) {
  const Item* const items = program_.items.data();
  const std::uint32_t first = hot.next;
  if (kInArm) {  // told by the last entry
    const std::uint32_t end = group_end(program_, first);
    if ((item_flags(items[end - 1]) & skipped_flags(arm_)) != 0) {
      hot.next = end;
      return true;
    }
  }
  const Row& model = entry<kInArm>(hot, item, first);
  if (!touch(hot, model, place_of(item), first)) return false;
  std::uint32_t bits = model.bits;
  ++hot.next;
  while ((item_flags(item) & kMore) != 0) {
    item = items[hot.next];
    const Row& row = entry<kInArm>(hot, item, first);
    if (!touch(hot, row, place_of(item), hot.next)) return false;
    if (((row.bits ^ model.bits) & kGroupKey) != 0 || (row.bits & kPairs) != 0) facts_->mixed_groups = true;
    bits |= row.bits;
    ++hot.next;
  }
  const unsigned flags = item_flags(item);
  if ((flags & (kAfterCompute | kHandle)) != kAfterCompute || (flags & (kComputeWaits | kHostWaits)) == 0 ||
      item_stream(item) >= static_cast<int>(program_.streams.size()))
    return false;
  hot.last_group = hot.next;
  if ((flags & kHostWaits) != 0) hot.host_group = hot.last_group;
  if ((bits & (kDecides | kTouchesSync)) != 0) {
    note_entries(first, hot.next);
    hot.quiet = tables_.sync.happened();
  }
  return (bits & kFreeAfter) == 0 || release_after(hot, first, hot.next);
}

[[gnu::always_inline]] inline bool OrderedPass::release_after(Hot& hot, std::uint32_t first,
                                                              std::uint32_t end) {
  for (std::uint32_t i = first; i < end; ++i) {
    const Item item = program_.items[i];
    const Row& row = row_of(first_endpoint_ + item_ref(item));
    if ((row.bits & kFreeAfter) == 0) continue;
    std::uint64_t& slots = word(row, place_of(item));
    if ((slots & row.slots.care) == 0) return false;
    slots &= ~row.slots.care;
    hot.live -= row.losses;
    hot.stashes -= row.old_stashes;
  }
  return true;
}

// What a launch adds for check_gradient_sync; the new Hot::quiet.
std::uint32_t OrderedPass::note_launch(unsigned kernel, Row& row, std::uint32_t item) {
  if (arm_ == Arm::kYes) return tables_.sync.happened();
  tables_.sync.launch(kernel, item);
  if (tables_.sync.repeats(kernel)) row.quiet = tables_.sync.happened();
  return tables_.sync.happened();
}

// What a launch does to slots of step scope beside those of its microbatch, and to what decisions are by.
bool OrderedPass::change_step(const Row& row, unsigned kernel, std::uint32_t item) {
  if ((row.bits & kTwoScopes) != 0) {
    const Change& change = step_changes_[row.change];
    std::uint64_t& slots = words_[step_word_];
    if ((slots & change.care) != change.want) return false;
    slots ^= change.flip;
  }
  if ((row.bits & kDecides) == 0) return true;
  for (const std::uint16_t slot : program_.kernels[kernel].writes) {
    if (lanes_[slot].decides) writers_[slot] = item + 1;
  }
  return true;
}

void OrderedPass::note_entries(std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t i = first; i < end; ++i) {
    const unsigned endpoint = item_ref(program_.items[i]);
    const std::uint32_t bits = row_of(first_endpoint_ + endpoint).bits;
    if ((bits & kDecides) != 0) writers_[tables_.endpoints[endpoint].slot] = i + 1;
    if ((bits & kTouchesSync) != 0 && arm_ != Arm::kYes) tables_.sync.operation(endpoint, i);
  }
}

void OrderedPass::use_in_arm(unsigned endpoint, const FirstUse& use_of) {
  if ((item_flags(program_.items[use_of.item]) & (kArmYes | kArmNo)) != 0 &&
      tables_.armed_seen[endpoint] != tables_.mark) {
    tables_.armed_seen[endpoint] = tables_.mark;
    facts_->armed.push_back(use_of.item);
  }
  if (tables_.seen[endpoint] != tables_.mark) use(endpoint, use_of);
}

void OrderedPass::use(unsigned endpoint, const FirstUse& first) {
  tables_.seen[endpoint] = tables_.mark;
  if (!is_p2p(tables_.endpoints[endpoint].kind)) return;
  ScratchVector<FirstUse>& uses = facts_->first_uses[arm_ == Arm::kNo ? 1 : 0];
  uses.push_back(first);
}

bool OrderedPass::decide(Item item) {
  const unsigned slot_class = program_.variables[item_ref(item)].slot;
  const Lane& of = lane(slot_class);
  if (of.impossible || !of.decides) return false;
  const bool is_live = of.bit == 0 || (words_[step_word_] & of.bit) != 0;
  const std::uint32_t writer = is_live && writers_[slot_class] != 0 ? writers_[slot_class] - 1 : kNone32;
  if (arm_ == Arm::kYes) facts_->decisions.push_back({hot_.next, writer});
  return true;
}

void OrderedPass::open_lane(unsigned slot_class, Lane& lane) {
  lane.mark = mark_;
  lane.bit = 0;
  writers_[slot_class] = 0;
  if (lane.persistent) {
    persistent_bytes_ += program_.slots[slot_class].bytes;
    return;
  }
  int& lanes = lane.scope == 0 ? microbatch_lanes_ : step_lanes_;
  lane.impossible = lanes == kLanes64;
  if (!lane.impossible) lane.bit = std::uint64_t{1} << lanes++;
}

[[gnu::always_inline]] inline OrderedPass::Row& OrderedPass::begin_row(std::size_t number) {
  static const Row kEmpty{};  // copied in a few moves; a value made in place is a loop
  row_at_[number] = made_;
  Row& row = rows_[made_++];
  row = kEmpty;
  row.number = static_cast<std::uint32_t>(number);
  return row;
}

// A slot read stays live, one written was not live before (in place: was and stays), one freed was live.
// Anything else about a slot is for the general pass to explain.
OrderedPass::Row& OrderedPass::fresh_kernel(unsigned number) {
  const Kernel& kernel = program_.kernels[number];
  Row& row = begin_row(number);
  Change step{};
  bool impossible = false;
  const auto change_of = [&](const Lane& of) -> Change& { return of.scope == 0 ? row.slots : step; };
  for (const std::uint16_t slot : kernel.reads) {
    const Lane& of = lane(slot);
    impossible = impossible || of.impossible;
    change_of(of).care |= of.bit;
    change_of(of).want |= of.bit;
  }
  for (const std::uint16_t slot : kernel.writes) {
    const Lane& of = lane(slot);
    if (of.decides) row.bits |= kDecides;
    impossible = impossible || of.impossible;
    if (std::find(kernel.reads.begin(), kernel.reads.end(), slot) != kernel.reads.end()) continue;
    Change& change = change_of(of);
    impossible = impossible || (change.care & of.bit) != 0;  // written twice
    change.care |= of.bit;
    change.flip |= of.bit;
    row.gains += of.cost;
    row.new_stashes += of.stashes;
  }
  for (const std::uint16_t slot : kernel.frees) {
    const Lane& of = lane(slot);
    Change& change = change_of(of);
    impossible = impossible || of.impossible || of.persistent || (change.flip & of.bit) != 0;
    change.care |= of.bit;
    change.want |= of.bit;
    change.flip |= of.bit;
    row.losses += of.cost;
    row.old_stashes += of.stashes;
  }
  if (tables_.computes[number] != 0) {
    tables_.tallied.push_back(number);
  } else {
    row.bits |= kNoOperation;
  }
  if (row.slots.care == 0) {
    row.slots = step;
    row.scope = step_word_;
  } else if (step.care != 0) {
    row.bits |= kTwoScopes;
    row.change = static_cast<std::uint32_t>(step_changes_.size());
    step_changes_.push_back(step);
  }
  if (impossible) row.slots = {0, 1, 0};
  return row;
}

// An endpoint that is met for the first time, or in an arm.
OrderedPass::Row& OrderedPass::used_endpoint(unsigned endpoint, std::uint32_t item, std::uint32_t first,
                                             std::uint32_t need) {
  const std::size_t number = first_endpoint_ + endpoint;
  Row& row = row_at_[number] != 0 ? row_of(number) : fresh_endpoint(endpoint);
  const FirstUse use_of{item, first, need, false};
  if (arm_ != Arm::kNone) {
    use_in_arm(endpoint, use_of);
  } else {
    use(endpoint, use_of);
  }
  return row;
}

OrderedPass::Row& OrderedPass::fresh_endpoint(unsigned number) {
  const Endpoint& endpoint = program_.endpoints[number];
  Row& row = begin_row(first_endpoint_ + number);
  row.bits = std::uint32_t{endpoint.family} * 2 + (is_p2p(endpoint.kind) ? 1u : 0u);
  if (program_.families[endpoint.family].pairs) row.bits |= kPairs;
  if (tables_.sync.looks_at(number)) row.bits |= kTouchesSync;
  if (tables_.endpoints[number].dropped) return row;
  const Lane& of = lane(endpoint.slot);
  row.scope = of.scope;
  row.slots.care = of.bit;
  // A broadcast into a slot that is not live yet is left to the general pass.
  if (endpoint.kind == EndpointKind::kRecv) {
    row.slots.flip = of.bit;
    row.gains = of.cost;
    row.new_stashes = of.stashes;
  } else {
    row.slots.want = of.bit;
  }
  if (endpoint.kind != EndpointKind::kSend && of.decides) row.bits |= kDecides;
  if (endpoint.free_after) {
    row.bits |= kFreeAfter;
    row.losses = of.cost;
    row.old_stashes = of.stashes;
  }
  if (of.impossible || (of.persistent && endpoint.free_after)) row.slots = {0, 1, 0};
  return row;
}

OrderedPass::Row& OrderedPass::fresh_release(unsigned slot_class) {
  Row& row = begin_row(first_release_ + slot_class);
  const Lane& of = lane(slot_class);
  row.slots = {of.bit, of.bit, of.bit};
  row.scope = of.scope;
  row.losses = of.cost;
  row.old_stashes = of.stashes;
  if (of.bit == 0) row.slots = {0, 1, 0};
  return row;
}

}  // namespace plumbline::verify
