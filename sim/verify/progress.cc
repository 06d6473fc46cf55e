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

template <bool kTimed>
void Progress::drain(ColdConnect& cold) {
  while (!work_.empty()) advance<kTimed>(work_.pop(), cold);
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
[[gnu::always_inline]] inline void Progress::activate_p2p(std::uint32_t thread, const Port& port,
                                                          std::uint32_t item, const Lanes& begin,
                                                          Lanes& finish, std::int32_t& pending) {
  LinkState& link = links_[port.link];
  const std::int32_t side = port.side;
  const std::uint64_t label = std::uint64_t{port.key} << 20 |
                              static_cast<std::uint64_t>(item_microbatch(world_->program->items[item]));
  const std::int32_t count = link.count;
  if (count * side >= 0) {
    if (count == 0) {
      link.label = label;
      link.item = item;
      if constexpr (kTimed) link.begin = begin;
    }
    link.count = count + side;
    ++pending;
    return;
  }
  if (link.label != label) mismatched_ = true;
  Cursor& other = cursors_[port.peer];
  if constexpr (kTimed) {
    link.free_at = later(later(begin, link.begin), link.free_at).plus(port.duration);
    finish.raise(link.free_at);
    other.finish.raise(link.free_at);
  }
  link.count = count + side;
  if (link.count != 0) next_message(port.peer, link, port.link);
  if (port.peer == thread) {
    --pending;
  } else if (--other.pending == 0) {
    wake(port.peer);
  }
}

// A group of messages of one communicator. True: it is over.
template <bool kTimed>
[[gnu::always_inline]] inline bool Progress::exchange(std::uint32_t thread, const Timing::Track& track,
                                                      Cursor& cursor, Item last, Lanes& host) {
  const Item* const items = world_->program->items.data();
  const std::uint32_t member = port_of(cursor, item_ref(last)).member;
  Lanes begin, finish;
  if constexpr (kTimed) {
    // Where strict order holds, the communicator's last kernel is over before the device's last group is.
    begin = later(Timing::group_begin(track, last, host), later(cursor.last_group, members_[member].free_at));
    finish = begin;
  }
  std::int32_t pending = 0;
  for (std::uint32_t i = cursor.item; i != cursor.group_end; ++i)
    activate_p2p<kTimed>(thread, port_of(cursor, item_ref(items[i])), i, begin, finish, pending);
  cursor.member = member;
  if (pending == 0) {
    end_group<kTimed>(thread, track, cursor, last, finish, host);
    return true;
  }
  cursor.active = true;
  cursor.pending = pending;
  if constexpr (kTimed) cursor.finish = finish;
  return false;
}

// A group with collectives, or of more than one kernel. True: its first kernel is over.
template <bool kTimed>
bool Progress::mixed_group(std::uint32_t thread, const Timing::Track& track, Cursor& cursor, Item last) {
  const Program& program = *world_->program;
  cursor.active = true;
  cursor.phase = phase_of(port_of(cursor, item_ref(program.items[cursor.item])));
  for (std::uint32_t i = cursor.item + 1; cursor.mixed && i < cursor.group_end; ++i)
    cursor.phase = std::min(cursor.phase, phase_of(port_of(cursor, item_ref(program.items[i]))));
  if constexpr (kTimed) {
    cursor.begin = later(Timing::group_begin(track, last, cursor.host), cursor.last_group);
  }
  begin_phase<kTimed>(thread, cursor);
  return cursor.pending == 0;
}

template <bool kTimed>
void Progress::begin_phase(std::uint32_t thread, Cursor& cursor) {
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
      activate_p2p<kTimed>(thread, port, i, cursor.begin, cursor.finish, cursor.pending);
    } else {
      activate_collective<kTimed>(thread, cursor, port, i);
    }
  }
}

[[gnu::always_inline]] inline void Progress::entry_done(std::uint32_t current, std::uint32_t thread) {
  if (--cursors_[thread].pending == 0 && thread != current) wake(thread);
}

template <bool kTimed>
[[gnu::always_inline]] inline void Progress::end_group(std::uint32_t thread, const Timing::Track& track,
                                                       Cursor& cursor, Item last, const Lanes& finish,
                                                       Lanes& host) {
  if constexpr (kTimed) {
    if (cursor.member != kNone32) members_[cursor.member].free_at = finish;
    timing_->group_end(track, thread, cursor.item, cursor.group_end, last, finish, host);
    cursor.last_group = finish.certification();
  }
  cursor.item = cursor.group_end;
}

// Executes what is not in a group. False: the end, or a decision that is not open yet.
template <bool kTimed>
[[gnu::always_inline]] inline bool Progress::run_to_group(std::uint32_t thread, const Timing::Track& track,
                                                          Cursor& cursor, Lanes& host) {
  const Item* const items = world_->program->items.data();
  const Item skip = Item{skip_} << 24;
  std::uint32_t next = cursor.item;
  bool at_group = false;
  for (; next != cursor.end; ++next) {
    const Item item = items[next];
    const ItemOp op = item_op(item);
    at_group = op == ItemOp::kOp;
    if (at_group) break;
    if ((item & skip) != 0) continue;
    if (op == ItemOp::kDecide && !decisions_open_) {
      cursor.parked = true;
      break;
    }
    if constexpr (kTimed) {
      if (op == ItemOp::kLaunch) {
        timing_->launch(track, thread, item, host);
      } else if (op != ItemOp::kFree) {
        cursor.host = host;
        timing_->step(thread, item, cursor.host);
        host = cursor.host;
      }
    }
  }
  cursor.item = next;
  return at_group;
}

// Walks a rank's items until its device must wait.
template <bool kTimed>
void Progress::advance(std::uint32_t thread, ColdConnect& cold) {
  const Item* const items = world_->program->items.data();
  Cursor& cursor = cursors_[thread];
  // Ranks take turns every few items, too irregularly for the processor to see that each reads straight on.
  __builtin_prefetch(items + cursor.item + 16);
  Timing::Track track{};
  Lanes host;
  if constexpr (kTimed) {
    track = timing_->track(thread);
    host = cursor.host;
  }
  while (true) {
    if (cursor.active) {  // the phase has just completed; most groups have one
      if (cursor.mixed && next_phase(cursor)) {
        if constexpr (kTimed) {
          if (cursor.member != kNone32) members_[cursor.member].free_at = cursor.finish;
          cursor.begin = cursor.finish;
        }
        begin_phase<kTimed>(thread, cursor);
        if (cursor.pending > 0) break;
        continue;
      }
      cursor.active = false;
      const Lanes finish = cursor.finish;
      end_group<kTimed>(thread, track, cursor, items[cursor.group_end - 1], finish, host);
    }
    if (!run_to_group<kTimed>(thread, track, cursor, host)) break;
    const std::uint32_t end = group_end(*world_->program, cursor.item);
    const Item last = items[end - 1];
    if ((item_flags(last) & skip_) != 0) {
      cursor.item = end;
      continue;
    }
    if (cursor.item >= cursor.stop) {
      if constexpr (kTimed) cursor.host = host;
      if (!enter(thread, cursor, cold)) return;
      if constexpr (kTimed) host = cursor.host;
    }
    cursor.group_end = end;
    if (!cursor.mixed && is_p2p(port_of(cursor, item_ref(last)).kind)) {
      if (!exchange<kTimed>(thread, track, cursor, last, host)) break;
    } else {
      if constexpr (kTimed) cursor.host = host;
      if (!mixed_group<kTimed>(thread, track, cursor, last)) return;
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
