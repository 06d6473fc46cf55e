#include "sim/verify/ordered_pass.h"

#include <algorithm>

#include "sim/verify/coverage.h"

namespace plumbline::verify {
namespace {

void add(ClassCost& to, const ClassCost& cost) {
  to.bytes += cost.bytes;
  to.activation_bytes += cost.activation_bytes;
  to.stashes += cost.stashes;
  to.slots += cost.slots;
}

}  // namespace

OrderedPass::OrderedPass(HostTables& tables)
    : tables_(tables),
      program_(*tables.world->program),
      kernels_(program_.kernels.size()),
      endpoints_(program_.endpoints.size()),
      lane_mark_(program_.slots.size()),
      lane_(program_.slots.size()),
      decides_(program_.slots.size()),
      writers_(program_.slots.size()),
      microbatches_(static_cast<std::size_t>(program_.microbatches)) {
  for (const HostVariable& variable : program_.variables) decides_[variable.slot] = 1;
}

bool OrderedPass::run(std::size_t thread, RangeFacts& facts) {
  if (program_.fragment) return false;
  facts_ = &facts;
  begin(thread);
  bool accepted = walk(Arm::kNone);
  if (accepted) {
    facts.first_uses[1] = facts.first_uses[0];
    accepted = next_ == end_ ? live_.slots == 0 : both_arms();
  }
  take_tallies();
  if (!accepted) return false;
  facts.memory.peak = peak_.bytes;
  for (const unsigned slot_class : touched_) {
    if (program_.slots[slot_class].persistent) facts.memory.peak += program_.slots[slot_class].bytes;
  }
  facts.memory.peak_activations = peak_.activation_bytes;
  facts.memory.peak_item = peak_item_;
  facts.memory.live_stashes = peak_.stashes;
  facts.streams = std::max<int>(static_cast<int>(program_.streams.size()), 1);
  return true;
}

void OrderedPass::begin(std::size_t thread) {
  ++mark_;
  ++tables_.mark;
  std::fill(microbatches_.begin(), microbatches_.end(), 0);
  step_ = 0;
  microbatch_lanes_ = step_lanes_ = 0;
  touched_.clear();
  undo_.clear();
  journal_ = false;
  next_ = program_.threads[thread].begin;
  end_ = program_.threads[thread].end;
  last_group_ = host_group_ = 0;
  arm_ = Arm::kNone;
  live_ = peak_ = {};
  peak_item_ = -1;
}

void OrderedPass::take_tallies() {
  facts_->tallies.reserve(tables_.tallied.size());
  for (const std::uint32_t kernel : tables_.tallied) {
    if (tables_.tallies[kernel] != 0) facts_->tallies.emplace_back(kernel, tables_.tallies[kernel]);
    tables_.tallies[kernel] = 0;
  }
  tables_.tallied.clear();
}

bool OrderedPass::both_arms() {
  const std::uint32_t start = next_;
  for (std::uint32_t i = start; i < end_; ++i)
    facts_->operations += tables_.counts(program_.items[i]) ? 1 : 0;
  const std::uint64_t step = step_;
  const ScratchVector<std::uint32_t> writers = writers_;
  const ClassCost live = live_;
  const std::uint32_t last_group = last_group_, host_group = host_group_;
  journal_ = true;
  if (!walk(Arm::kYes) || live_.slots != 0) return false;
  for (auto entry = undo_.rbegin(); entry != undo_.rend(); ++entry)
    microbatches_[entry->microbatch] = entry->before;
  journal_ = false;
  step_ = step;
  writers_ = writers;
  live_ = live;
  last_group_ = last_group;
  host_group_ = host_group;
  next_ = start;
  ++tables_.mark;  // as the general pass does: connections of the common part are listed again
  return walk(Arm::kNo) && live_.slots == 0;
}

bool OrderedPass::walk(Arm arm) {
  arm_ = arm;
  const unsigned skip = skipped_flags(arm);
  while (next_ < end_) {
    const Item item = program_.items[next_];
    const ItemOp op = item_op(item);
    if (op == ItemOp::kOp) {
      if (!group()) return false;
      continue;
    }
    if ((item_flags(item) & skip) == 0) {
      if (op == ItemOp::kDecide && arm == Arm::kNone) return true;
      if (!(op == ItemOp::kLaunch ? launch(item) : step(item))) return false;
    }
    ++next_;
  }
  return true;
}

bool OrderedPass::step(Item item) {
  switch (item_op(item)) {
    case ItemOp::kFree:
      return free_slot(item);
    case ItemOp::kSyncStream:
      if (item_stream(item) != kComputeStream) return false;
      [[fallthrough]];
    case ItemOp::kSyncDevice:
      host_group_ = last_group_;
      return true;
    case ItemOp::kRead: {
      bool possible = true;
      const unsigned slot_class = program_.variables[item_ref(item)].slot;
      const std::uint64_t bit = lane(slot_class, possible);
      host_group_ = last_group_;
      return possible &&
             (word_of(program_.slots[slot_class].per_microbatch, item_microbatch(item)) & bit) == bit;
    }
    case ItemOp::kDecide:
      return decide(item);
    case ItemOp::kMark:
      return true;
    default:
      return false;  // handles and events: streams may run apart
  }
}

bool OrderedPass::launch(Item item) {
  if (item_stream(item) != kComputeStream) return false;
  const unsigned kernel = item_ref(item);
  const Row& row = kernel_row(kernel);
  if (row.counts) computation(kernel, item_microbatch(item));
  if (!row.possible || !apply(row, item_microbatch(item))) return false;
  if (row.decides) note_writers(kernel, next_);
  return true;
}

[[gnu::always_inline]] inline std::uint64_t& OrderedPass::word_of(bool per_microbatch, int microbatch) {
  return per_microbatch ? microbatches_[static_cast<std::size_t>(microbatch)] : step_;
}

[[gnu::always_inline]] inline void OrderedPass::set(std::uint64_t& word, std::uint64_t value,
                                                    bool per_microbatch, int microbatch) {
  if (journal_ && per_microbatch) undo_.push_back({static_cast<std::uint32_t>(microbatch), word});
  word = value;
}

[[gnu::always_inline]] inline bool OrderedPass::change(const Change& microbatch_change,
                                                       const Change& step_change, int microbatch) {
  if (microbatch_change.care != 0) {
    std::uint64_t& word = microbatches_[static_cast<std::size_t>(microbatch)];
    if ((word & microbatch_change.care) != microbatch_change.want) return false;
    if (journal_) undo_.push_back({static_cast<std::uint32_t>(microbatch), word});
    word ^= microbatch_change.flip;
  }
  if ((step_ & step_change.care) != step_change.want) return false;
  step_ ^= step_change.flip;
  return true;
}

[[gnu::always_inline]] inline bool OrderedPass::apply(const Row& row, int microbatch) {
  if (!change(row.microbatch, row.step, microbatch)) return false;
  gain(row.gains, next_);
  lose(row.losses);
  return true;
}

[[gnu::always_inline]] inline void OrderedPass::gain(const ClassCost& cost, std::uint32_t item) {
  add(live_, cost);
  if (live_.bytes > peak_.bytes) {
    peak_.bytes = live_.bytes;
    peak_item_ = item;
  }
  peak_.activation_bytes = std::max(peak_.activation_bytes, live_.activation_bytes);
  peak_.stashes = std::max(peak_.stashes, live_.stashes);
}

[[gnu::always_inline]] inline void OrderedPass::lose(const ClassCost& cost) {
  live_.bytes -= cost.bytes;
  live_.activation_bytes -= cost.activation_bytes;
  live_.stashes -= cost.stashes;
  live_.slots -= cost.slots;
}

void OrderedPass::computation(unsigned kernel, int microbatch) {
  if (arm_ == Arm::kNone) ++facts_->operations;
  if (arm_ == Arm::kYes) return;
  std::uint64_t& tally = tables_.tallies[kernel];
  if (tally == 0) tables_.tallied.push_back(kernel);
  tally += microbatch_tally(microbatch);
}

bool OrderedPass::group() {
  const std::uint32_t first = next_;
  const std::uint32_t end = group_end(program_, first);
  const unsigned flags = item_flags(program_.items[end - 1]);
  next_ = end;
  if ((flags & skipped_flags(arm_)) != 0) return true;
  if ((flags & (kAfterCompute | kHandle)) != kAfterCompute || (flags & (kComputeWaits | kHostWaits)) == 0)
    return false;
  if (item_stream(program_.items[end - 1]) >= static_cast<int>(program_.streams.size())) return false;
  const std::uint32_t need = host_group_;
  last_group_ = end;
  if (arm_ == Arm::kNone) facts_->operations += end - first;
  bool releases = false;
  std::uint32_t key = 0;
  for (std::uint32_t i = first; i < end; ++i) {
    const Item item = program_.items[i];
    EndpointState& endpoint = endpoint_row(item_ref(item));
    if (endpoint.seen != tables_.mark || arm_ != Arm::kNone)
      first_use(item_ref(item), endpoint, {i, first, need, false});
    if (i == first) key = endpoint.group_key;
    if (end - first > 1 && (endpoint.pairs || endpoint.group_key != key)) facts_->mixed_groups = true;
    if (endpoint.dropped) continue;
    std::uint64_t& word = word_of(endpoint.per_microbatch, item_microbatch(item));
    if (!endpoint.possible || (word & endpoint.bit) != (endpoint.receives ? 0 : endpoint.bit)) return false;
    if (endpoint.receives) {
      set(word, word | endpoint.bit, endpoint.per_microbatch, item_microbatch(item));
      gain(endpoint.cost, i);
    }
    if (endpoint.notes_writer) writers_[tables_.endpoints[item_ref(item)].slot] = i + 1;
    releases = releases || endpoint.free_after;
  }
  if (releases && !release_after(first, end)) return false;
  if ((flags & kHostWaits) != 0) host_group_ = last_group_;
  return true;
}

bool OrderedPass::release_after(std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t i = first; i < end; ++i) {
    const Item item = program_.items[i];
    const EndpointState& endpoint = endpoint_row(item_ref(item));
    if (!endpoint.free_after) continue;
    std::uint64_t& word = word_of(endpoint.per_microbatch, item_microbatch(item));
    if ((word & endpoint.bit) == 0) return false;
    set(word, word & ~endpoint.bit, endpoint.per_microbatch, item_microbatch(item));
    lose(endpoint.cost);
  }
  return true;
}

void OrderedPass::first_use(unsigned endpoint, EndpointState& state, const FirstUse& use) {
  if (arm_ != Arm::kNone && (item_flags(program_.items[use.item]) & (kArmYes | kArmNo)) != 0 &&
      tables_.armed_seen[endpoint] != tables_.mark) {
    tables_.armed_seen[endpoint] = tables_.mark;
    facts_->armed.push_back(use.item);
  }
  if (state.seen == tables_.mark) return;
  state.seen = tables_.mark;
  if (!state.p2p) return;
  ScratchVector<FirstUse>& uses = facts_->first_uses[arm_ == Arm::kNo ? 1 : 0];
  if (uses.capacity() == 0) uses.reserve(8);  // two neighbours, two directions, two uses of each
  uses.push_back(use);
}

bool OrderedPass::free_slot(Item item) {
  const unsigned slot_class = item_ref(item);
  bool possible = true;
  const std::uint64_t bit = lane(slot_class, possible);
  if (!possible || bit == 0) return false;
  const bool per_microbatch = program_.slots[slot_class].per_microbatch;
  std::uint64_t& word = word_of(per_microbatch, item_microbatch(item));
  if ((word & bit) == 0) return false;
  set(word, word & ~bit, per_microbatch, item_microbatch(item));
  lose(tables_.costs[slot_class]);
  return true;
}

bool OrderedPass::decide(Item item) {
  const unsigned slot_class = program_.variables[item_ref(item)].slot;
  bool possible = true;
  const std::uint64_t bit = lane(slot_class, possible);
  if (!possible || program_.slots[slot_class].per_microbatch) return false;
  const bool is_live = bit == 0 || (step_ & bit) != 0;
  const std::uint32_t writer = is_live && writers_[slot_class] != 0 ? writers_[slot_class] - 1 : kNone32;
  if (arm_ == Arm::kYes) facts_->decisions.push_back({next_, writer});
  return true;
}

void OrderedPass::note_writers(unsigned kernel, std::uint32_t item) {
  for (const std::uint16_t slot : program_.kernels[kernel].writes) {
    if (decides_[slot] != 0 && !program_.slots[slot].per_microbatch) writers_[slot] = item + 1;
  }
}

OrderedPass::Change& OrderedPass::scope(unsigned slot_class, Row& row) {
  return program_.slots[slot_class].per_microbatch ? row.microbatch : row.step;
}

void OrderedPass::open_lane(unsigned slot_class) {
  const SlotClass& slot = program_.slots[slot_class];
  lane_mark_[slot_class] = mark_;
  writers_[slot_class] = 0;
  touched_.push_back(slot_class);
  lane_[slot_class] = kNoLane;
  if (slot.persistent) return;
  int& lanes = slot.per_microbatch ? microbatch_lanes_ : step_lanes_;
  lane_[slot_class] = static_cast<std::uint8_t>(std::min<int>(lanes++, kLanes64));
}

[[gnu::always_inline]] inline OrderedPass::Row& OrderedPass::kernel_row(unsigned kernel) {
  Row& row = kernels_[kernel];
  if (row.mark != mark_) make_kernel(kernel, row);
  return row;
}

[[gnu::always_inline]] inline OrderedPass::EndpointState& OrderedPass::endpoint_row(unsigned endpoint) {
  EndpointState& state = endpoints_[endpoint];
  if (state.mark != mark_) make_endpoint(endpoint, state);
  return state;
}

// A slot read stays live, one written was not live before (in place: was and stays), one freed was live.
// Anything else about a slot is for the general pass to explain.
void OrderedPass::make_kernel(unsigned number, Row& row) {
  const Kernel& kernel = program_.kernels[number];
  row = {};
  row.mark = mark_;
  row.counts = tables_.computes[number] != 0;
  for (const std::uint16_t slot : kernel.reads) {
    const std::uint64_t bit = lane(slot, row.possible);
    Change& change_of = scope(slot, row);
    change_of.care |= bit;
    change_of.want |= bit;
  }
  for (const std::uint16_t slot : kernel.writes) {
    row.decides = row.decides || (decides_[slot] != 0 && !program_.slots[slot].per_microbatch);
    const std::uint64_t bit = lane(slot, row.possible);
    Change& change_of = scope(slot, row);
    if (std::find(kernel.reads.begin(), kernel.reads.end(), slot) != kernel.reads.end()) continue;
    if ((change_of.care & bit) != 0) row.possible = false;  // written twice
    change_of.care |= bit;
    change_of.flip |= bit;
    add(row.gains, tables_.costs[slot]);
  }
  for (const std::uint16_t slot : kernel.frees) {
    const std::uint64_t bit = lane(slot, row.possible);
    Change& change_of = scope(slot, row);
    if (program_.slots[slot].persistent || (change_of.flip & bit) != 0) row.possible = false;
    change_of.care |= bit;
    change_of.want |= bit;
    change_of.flip |= bit;
    add(row.losses, tables_.costs[slot]);
  }
}

void OrderedPass::make_endpoint(unsigned number, EndpointState& state) {
  const Endpoint& endpoint = program_.endpoints[number];
  const SlotClass& slot = program_.slots[endpoint.slot];
  state = {};
  state.mark = mark_;
  state.p2p = is_p2p(endpoint.kind);
  state.group_key = std::uint32_t{endpoint.family} * 2 + (state.p2p ? 1u : 0u);
  state.pairs = program_.families[endpoint.family].pairs;
  state.dropped = tables_.endpoints[number].dropped;
  if (state.dropped) return;
  state.bit = lane(endpoint.slot, state.possible);
  state.cost = tables_.costs[endpoint.slot];
  state.per_microbatch = slot.per_microbatch;
  // A broadcast into a slot that is not live yet is left to the general pass.
  state.receives = endpoint.kind == EndpointKind::kRecv;
  state.notes_writer =
      endpoint.kind != EndpointKind::kSend && !slot.per_microbatch && decides_[endpoint.slot] != 0;
  state.free_after = endpoint.free_after;
  if (slot.persistent && endpoint.free_after) state.possible = false;
}

}  // namespace plumbline::verify
