#include "sim/verify/progress.h"

#include <algorithm>

namespace plumbline::verify {

Progress::Progress(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of,
                   std::optional<Timing> timing)
    : world_(&world),
      timing_(std::move(timing)),
      cursors_(world.threads()),
      links_(world.links.size()),
      members_(world.member_thread.size()),
      communicators_(world.linked->communicators.size()),
      work_(world.threads()) {
  for (std::size_t t = 0; t < world.threads(); ++t) {
    cursors_[t].item = world.program->threads[t].begin;
    cursors_[t].end = world.program->threads[t].end;
    cursors_[t].mixed = facts_of[t]->mixed_groups;
    cursors_[t].port_offset = world.port_offset(t);
    if (!timing_) continue;
    cursors_[t].first_tail = timing_->first_tail(t);
    cursors_[t].first_cost = timing_->first_cost(t);
  }
}

void Progress::run(Arm arm, ColdConnect& cold) {
  skip_ = skipped_flags(arm);
  decisions_open_ = arm != Arm::kNone;
  for (std::uint32_t t = static_cast<std::uint32_t>(cursors_.size()); t-- > 0;) {
    Cursor& cursor = cursors_[t];
    cursor.stop = cold.stop(t);
    if (cursor.active || cursor.item == cursor.end) continue;
    cursor.parked = false;
    wake(t);
  }
  if (timing_) {
    drain<true>(cold);
  } else {
    drain<false>(cold);
  }
}

bool Progress::completed() const {
  return std::all_of(cursors_.begin(), cursors_.end(), [](const Cursor& c) { return c.item == c.end; });
}

bool Progress::incomplete(std::uint32_t thread, std::uint32_t item) const {
  const Port& port = world_->port(thread, item_ref(world_->program->items[item]));
  const Cursor& cursor = cursors_[thread];
  if ((cursor.mixed && phase_of(port) != cursor.phase) || port.dropped) return false;
  if (!is_p2p(port.kind)) {
    const MemberState& member = members_[port.member];
    return member.done < member.active && item >= member.item;
  }
  const LinkState& link = links_[port.link];
  return (port.kind == EndpointKind::kSend ? link.count > 0 : link.count < 0) && item >= link.item;
}

Lanes Progress::makespan() const {
  Lanes end;
  if (!timing_) return end;
  end = timing_->end();
  for (const Cursor& cursor : cursors_) end.raise(cursor.host);
  return end;
}

// What the walk looks up, by plain pointers: no store to a row can move them, which the compiler cannot see of vectors.
struct Progress::Tables {
  const Item* items;
  const Port* ports;
  LinkState* links;
  Cursor* cursors;
  MemberState* members;
  Timing::Track all;  // the first thread's
  Item skip;          // bits of items that are not executed
  Item no_launch;     // none of these: a launch that is executed
};

Progress::Tables Progress::tables() {
  static_assert(static_cast<int>(ItemOp::kLaunch) == 0);
  const Item skip = make_item(ItemOp::kLaunch, 0, skip_, 0, 0);
  const Item any_op = make_item(static_cast<ItemOp>(kItemOps - 1), 0, 0, 0, 0);
  return {world_->program->items.data(),
          world_->ports.data(),
          links_.data(),
          cursors_.data(),
          members_.data(),
          timing_ ? timing_->track(0) : Timing::Track{},
          skip,
          skip | any_op};
}

template <bool kTimed>
void Progress::drain(ColdConnect& cold) {
  const Tables rows = tables();
  while (!work_.empty()) advance<kTimed>(rows, work_.pop(), cold);
}

// The group's next kernel: the lowest phase above the current one.
bool Progress::next_phase(Cursor& cursor) const {
  const Program& program = *world_->program;
  std::uint64_t next = ~std::uint64_t{0};
  for (std::uint32_t i = cursor.item;; ++i) {
    const std::uint64_t phase = phase_of(port_of(cursor, item_ref(program.items[i])));
    if (phase > cursor.phase) next = std::min(next, phase);
    if ((item_flags(program.items[i]) & kMore) == 0) break;
  }
  if (next == ~std::uint64_t{0}) return false;
  cursor.phase = next;
  return true;
}

// Whichever end of a message comes second completes it.
template <bool kTimed>
[[gnu::always_inline]] inline void Progress::activate_p2p(const Tables& tables, std::uint32_t thread,
                                                          std::uint32_t item, const Port& port,
                                                          const Lanes& begin, Lanes& finish,
                                                          std::int32_t& pending) {
  LinkState& link = tables.links[port.link];
  const std::int32_t side = port.side, count = link.count;
  const std::uint64_t label =
      std::uint64_t{port.key} << 20 | static_cast<std::uint64_t>(item_microbatch(tables.items[item]));
  link.count = count + side;
  if (count * side >= 0) {
    ++pending;
    if (count != 0) return;
    link.label = label;
    link.item = item;
    if constexpr (kTimed) link.begin = begin;
    return;
  }
  mismatched_ |= link.label != label;
  Cursor& other = tables.cursors[port.peer];
  if constexpr (kTimed) {
    const Lanes end = later(later(begin, link.begin), link.free_at).plus(port.duration);
    link.free_at = end;
    finish.raise(end);
    other.finish.raise(end);
  }
  if (link.count != 0) [[unlikely]]
    next_message(port.peer, link, port.link);
  if (port.peer == thread) [[unlikely]] {
    --pending;
  } else if (--other.pending == 0) {
    wake(port.peer);
  }
}

// A group of messages of one communicator. True: it is over.
template <bool kTimed>
[[gnu::always_inline]] inline bool Progress::exchange(const Tables& tables, const Timing::Track& track,
                                                      std::uint32_t thread, Cursor& cursor,
                                                      const Port& last_port, Item last, Lanes& host) {
  const std::uint32_t member = last_port.member, end = cursor.group_end;
  Lanes begin, finish;
  if constexpr (kTimed) {
    // Where strict order holds, the communicator's last kernel is over before the device's last group is.
    begin = later(Timing::group_begin(track, last, host),
                  later(cursor.last_group, tables.members[member].free_at));
    finish = begin;
  }
  std::int32_t pending = 0;
  std::uint32_t item = cursor.item;
  for (; item != end - 1; ++item)
    activate_p2p<kTimed>(tables, thread, item,
                         tables.ports[cursor.port_offset + item_ref(tables.items[item])], begin, finish,
                         pending);
  activate_p2p<kTimed>(tables, thread, item, last_port, begin, finish, pending);
  cursor.member = member;
  if (pending == 0) {
    end_group<kTimed>(tables, track, thread, cursor, last, finish, host);
    return true;
  }
  cursor.active = true;
  cursor.pending = pending;
  if constexpr (kTimed) cursor.finish = finish;
  return false;
}

// A group with collectives, or of more than one kernel. True: its first kernel is over.
template <bool kTimed>
[[gnu::noinline]] bool Progress::mixed_group(std::uint32_t thread, const Timing::Track& track, Cursor& cursor,
                                             Item last) {
  const Program& program = *world_->program;
  cursor.active = true;
  cursor.phase = phase_of(port_of(cursor, item_ref(program.items[cursor.item])));
  for (std::uint32_t i = cursor.item + 1; cursor.mixed && i < cursor.group_end; ++i)
    cursor.phase = std::min(cursor.phase, phase_of(port_of(cursor, item_ref(program.items[i]))));
  if constexpr (kTimed)
    cursor.begin = later(Timing::group_begin(track, last, cursor.host), cursor.last_group);
  begin_phase<kTimed>(thread, cursor);
  return cursor.pending == 0;
}

template <bool kTimed>
[[gnu::noinline]] void Progress::begin_phase(std::uint32_t thread, Cursor& cursor) {
  const Program& program = *world_->program;
  cursor.member = kNone32;
  if constexpr (kTimed) cursor.finish = cursor.begin;
  for (std::uint32_t i = cursor.item; i != cursor.group_end; ++i) {
    const Port& port = port_of(cursor, item_ref(program.items[i]));
    if ((cursor.mixed && phase_of(port) != cursor.phase) || port.dropped) continue;
    if constexpr (kTimed) {
      if (cursor.member == kNone32) {
        cursor.begin.raise(members_[port.member].free_at);
        cursor.finish = cursor.begin;
      }
    }
    cursor.member = port.member;
    if (is_p2p(port.kind)) {
      activate_p2p<kTimed>(tables(), thread, i, port, cursor.begin, cursor.finish, cursor.pending);
    } else {
      activate_collective<kTimed>(thread, cursor, port, i);
    }
  }
}

[[gnu::always_inline]] inline void Progress::entry_done(std::uint32_t current, std::uint32_t thread) {
  if (--cursors_[thread].pending == 0 && thread != current) wake(thread);
}

template <bool kTimed>
[[gnu::always_inline]] inline void Progress::end_group(const Tables& tables, const Timing::Track& track,
                                                       std::uint32_t thread, Cursor& cursor, Item last,
                                                       const Lanes& finish, Lanes& host) {
  if constexpr (kTimed) {
    if (cursor.member != kNone32) tables.members[cursor.member].free_at = finish;
    timing_->group_end(track, thread, cursor.item, cursor.group_end, last, finish, host);
    cursor.last_group = finish.certification();
  }
  cursor.item = cursor.group_end;
}

// The phase of the group at the cursor has completed; most groups have one. False: the next one waits.
template <bool kTimed>
[[gnu::always_inline]] inline bool Progress::phase_over(const Tables& tables, const Timing::Track& track,
                                                        std::uint32_t thread, Cursor& cursor, Lanes& host) {
  while (cursor.mixed && next_phase(cursor)) {
    if constexpr (kTimed) {
      if (cursor.member != kNone32) members_[cursor.member].free_at = cursor.finish;
      cursor.begin = cursor.finish;
    }
    begin_phase<kTimed>(thread, cursor);
    if (cursor.pending > 0) return false;
  }
  cursor.active = false;
  end_group<kTimed>(tables, track, thread, cursor, tables.items[cursor.group_end - 1], cursor.finish, host);
  return true;
}

// Executes what is not in a group. False: the end, or a decision that is not open yet.
template <bool kTimed>
[[gnu::always_inline]] inline bool Progress::run_to_group(const Tables& tables, const Timing::Track& track,
                                                          std::uint32_t thread, Cursor& cursor, Lanes& host) {
  const std::uint32_t end = cursor.end;
  std::uint32_t next = cursor.item;
  bool at_group = false;
  for (; next != end; ++next) {
    const Item item = tables.items[next];
    if ((item & tables.no_launch) == 0) {  // one that is executed
      if constexpr (kTimed) timing_->launch(track, thread, item, host);
      continue;
    }
    const ItemOp op = item_op(item);
    at_group = op == ItemOp::kOp;
    if (at_group) break;
    if (op == ItemOp::kFree || (item & tables.skip) != 0) continue;
    if (op == ItemOp::kDecide && !decisions_open_) {
      cursor.parked = true;
      break;
    }
    if constexpr (kTimed) {
      cursor.host = host;
      timing_->step(thread, item, cursor.host);
      host = cursor.host;
    }
  }
  cursor.item = next;
  return at_group;
}

// Walks a rank's items until its device must wait.
template <bool kTimed>
[[gnu::always_inline]] inline void Progress::advance(const Tables& tables, std::uint32_t thread,
                                                     ColdConnect& cold) {
  Cursor& cursor = tables.cursors[thread];
  // Ranks take turns every few items, too irregularly for the processor to see that each reads straight on.
  __builtin_prefetch(tables.items + cursor.item + 16);
  Timing::Track track{};
  Lanes host;
  if constexpr (kTimed) {
    track = {tables.all.tails + cursor.first_tail, tables.all.costs + cursor.first_cost};
    host = cursor.host;
  }
  bool goes_on = !cursor.active || phase_over<kTimed>(tables, track, thread, cursor, host);
  while (goes_on) {
    if (!run_to_group<kTimed>(tables, track, thread, cursor, host)) break;
    std::uint32_t end = cursor.item;
    while ((item_flags(tables.items[end]) & kMore) != 0) ++end;
    const Item last = tables.items[end++];
    if ((last & tables.skip) != 0) {
      cursor.item = end;
      continue;
    }
    if (cursor.item >= cursor.stop) {
      if constexpr (kTimed) cursor.host = host;
      if (!enter(thread, cursor, cold)) return;
      if constexpr (kTimed) host = cursor.host;
    }
    cursor.group_end = end;
    const Port& port = tables.ports[cursor.port_offset + item_ref(last)];
    if (!cursor.mixed && is_p2p(port.kind)) {
      goes_on = exchange<kTimed>(tables, track, thread, cursor, port, last, host);
    } else {
      if constexpr (kTimed) cursor.host = host;
      goes_on = mixed_group<kTimed>(thread, track, cursor, last) &&
                phase_over<kTimed>(tables, track, thread, cursor, host);
    }
  }
  if constexpr (kTimed) cursor.host = host;
}

// The next message of the same link in the group that is active at `thread`.
void Progress::next_message(std::uint32_t thread, LinkState& link, std::uint32_t number) {
  const EndpointKind kind = link.count > 0 ? EndpointKind::kSend : EndpointKind::kRecv;
  while (true) {
    const Item item = world_->program->items[++link.item];
    const Port& port = world_->port(thread, item_ref(item));
    if (port.link != number || port.kind != kind) continue;
    link.label = std::uint64_t{port.key} << 20 | static_cast<std::uint64_t>(item_microbatch(item));
    return;
  }
}

template <bool kTimed>
[[gnu::noinline]] void Progress::activate_collective(std::uint32_t thread, Cursor& cursor, const Port& port,
                                                     std::uint32_t item) {
  MemberState& member = members_[port.member];
  CommunicatorState& communicator = communicators_[port.communicator];
  if (member.active == member.done) {
    member.item = item;
    if constexpr (kTimed) member.begin = cursor.begin;
  }
  ++cursor.pending;
  if (member.active++ == communicator.index) ++communicator.arrivals;
  while (communicator.arrivals == world_->communicator_size(port.communicator)) {
    complete_collective<kTimed>(thread, port.communicator);
  }
}

template <bool kTimed>
void Progress::complete_collective(std::uint32_t current, std::uint32_t number) {
  CommunicatorState& communicator = communicators_[number];
  const std::uint32_t first = world_->member_base[number];
  const std::uint32_t last = world_->member_base[number + 1];
  const auto port_of = [&](std::uint32_t m) -> const Port& {
    return world_->port(world_->member_thread[m], item_ref(world_->program->items[members_[m].item]));
  };
  const Port& model = port_of(first);
  Lanes finish;
  for (std::uint32_t m = first; m < last; ++m) {
    const Port& port = port_of(m);
    mismatched_ = mismatched_ || port.key != model.key || port.peer != model.peer;
    if constexpr (kTimed) finish.raise(members_[m].begin);
  }
  if constexpr (kTimed) finish = finish.plus(model.duration);
  ++communicator.index;
  communicator.arrivals = 0;
  for (std::uint32_t m = first; m < last; ++m) {
    MemberState& member = members_[m];
    const std::uint32_t thread = world_->member_thread[m];
    if constexpr (kTimed) cursors_[thread].finish.raise(finish);
    if (++member.done < member.active) {
      ++communicator.arrivals;
      next_collective(thread, member, m);
    }
    entry_done(current, thread);
  }
}

void Progress::next_collective(std::uint32_t thread, MemberState& member, std::uint32_t number) {
  while (true) {
    const Port& port = world_->port(thread, item_ref(world_->program->items[++member.item]));
    if (port.member == number && !is_p2p(port.kind) && !port.dropped) return;
  }
}

// False: the host has not set up the group's connections yet; the device is woken when it has.
bool Progress::enter(std::uint32_t thread, Cursor& cursor, ColdConnect& cold) {
  const auto admit = [&](std::uint32_t at, Cursor& device) {
    double host = device.host[0];
    device.parked = !cold.admit(at, device.item, host);
    device.host.raise_certification(host);
    device.stop = cold.stop(at);
  };
  cold.arrive(thread, cursor.item, cursor.host[0]);
  for (const std::uint32_t other : cold.changed()) {
    Cursor& woken = cursors_[other];
    if (woken.parked) {
      admit(other, woken);
      if (!woken.parked) wake(other);
    } else {
      woken.stop = cold.stop(other);
    }
  }
  admit(thread, cursor);
  return !cursor.parked;
}

}  // namespace plumbline::verify
