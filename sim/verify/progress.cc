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
      communicators_(world.linked->communicators.size()) {
  for (std::size_t t = 0; t < world.threads(); ++t) {
    cursors_[t].item = world.program->threads[t].begin;
    cursors_[t].end = world.program->threads[t].end;
    cursors_[t].mixed = facts_of[t]->mixed_groups;
    cursors_[t].port_offset = world.port_offset(t);
  }
  work_.reserve(world.threads());
}

void Progress::run(Arm arm, ColdConnect& cold) {
  skip_ = skipped_flags(arm);
  decisions_open_ = arm != Arm::kNone;
  for (std::uint32_t t = static_cast<std::uint32_t>(cursors_.size()); t-- > 0;) {
    Cursor& cursor = cursors_[t];
    cursor.stop = cold.stop(t);
    if (cursor.active || cursor.item == cursor.end) continue;
    cursor.parked = false;
    work_.push_back(t);
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
  if (phase_of(port) != cursors_[thread].phase || port.dropped) return false;
  if (!is_p2p(port.kind)) {
    const MemberState& member = members_[port.member];
    return member.done < member.active && item >= member.item;
  }
  const LinkState& link = links_[port.link];
  return (port.kind == EndpointKind::kSend ? link.count > 0 : link.count < 0) && item >= link.item;
}

Lanes Progress::makespan() const {
  Lanes end{};
  if (!timing_) return end;
  end = timing_->end();
  for (const Cursor& cursor : cursors_) raise(end, cursor.host);
  return end;
}

template <bool kTimed>
void Progress::drain(ColdConnect& cold) {
  while (!work_.empty()) {
    const std::uint32_t thread = work_.back();
    work_.pop_back();
    advance<kTimed>(thread, cold);
  }
}

// False: the device waits, for its host or for the other ends.
template <bool kTimed>
[[gnu::always_inline]] inline bool Progress::begin_group(std::uint32_t thread, Cursor& cursor,
                                                         ColdConnect& cold) {
  const Program& program = *world_->program;
  const std::uint32_t end = group_end(program, cursor.item);
  const Item last = program.items[end - 1];
  if ((item_flags(last) & skip_) != 0) {
    cursor.item = end;
    return true;
  }
  if (cursor.item >= cursor.stop && !enter(thread, cursor, cold)) return false;
  cursor.active = true;
  cursor.group_end = end;
  cursor.phase = phase_of(port_of(cursor, item_ref(program.items[cursor.item])));
  for (std::uint32_t i = cursor.item + 1; cursor.mixed && i < end; ++i) {
    cursor.phase = std::min(cursor.phase, phase_of(port_of(cursor, item_ref(program.items[i]))));
  }
  if constexpr (kTimed) {
    Lanes begin = timing_->group_begin(thread, last, cursor.host);
    begin[0] = std::max(begin[0], cursor.last_group[0]);
    assign(cursor.begin, begin);
  }
  begin_phase<kTimed>(thread, cursor);
  return cursor.pending == 0;
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

template <bool kTimed>
[[gnu::always_inline]] inline void Progress::begin_phase(std::uint32_t thread, Cursor& cursor) {
  const Program& program = *world_->program;
  cursor.member = kNone32;
  if constexpr (kTimed) assign(cursor.finish, cursor.begin);
  for (std::uint32_t i = cursor.item;; ++i) {
    const Item item = program.items[i];
    const Port& port = port_of(cursor, item_ref(item));
    if ((!cursor.mixed || phase_of(port) == cursor.phase) && !port.dropped) {
      if constexpr (kTimed) {
        if (cursor.member == kNone32) {
          cursor.begin[1] = cursor.finish[1] = std::max(cursor.begin[1], members_[port.member].free_at);
        }
      }
      cursor.member = port.member;
      if (is_p2p(port.kind)) {
        activate_p2p<kTimed>(thread, cursor, port, i);
      } else {
        activate_collective<kTimed>(thread, cursor, port, i);
      }
    }
    if ((item_flags(item) & kMore) == 0) break;
  }
}

[[gnu::always_inline]] inline void Progress::entry_done(std::uint32_t current, std::uint32_t thread) {
  if (--cursors_[thread].pending == 0 && thread != current) work_.push_back(thread);
}

template <bool kTimed>
[[gnu::always_inline]] inline void Progress::activate_p2p(std::uint32_t thread, Cursor& cursor,
                                                          const Port& port, std::uint32_t item) {
  LinkState& link = links_[port.link];
  const std::int32_t side = port.kind == EndpointKind::kSend ? 1 : -1;
  const std::uint64_t label = std::uint64_t{port.key} << 20 |
                              static_cast<std::uint64_t>(item_microbatch(world_->program->items[item]));
  if (link.count * side >= 0) {
    if (link.count == 0) {
      link.label = label;
      link.item = item;
      if constexpr (kTimed) assign(link.begin, cursor.begin);
    }
    link.count += side;
    ++cursor.pending;
    return;
  }
  mismatched_ = mismatched_ || link.label != label;
  Cursor& other = cursors_[port.peer];
  if constexpr (kTimed) {
    const Nanoseconds duration = port.duration;
    Lanes finish;
    for (std::size_t i = 0; i < kLanes; ++i) {
      finish[i] = std::max({cursor.begin[i], link.begin[i], link.free_at[i]}) + duration;
    }
    assign(link.free_at, finish);
    raise(cursor.finish, finish);
    raise(other.finish, finish);
  }
  link.count += side;
  if (link.count != 0) next_message(port.peer, link, port.link);
  entry_done(thread, port.peer);
}

// Walks a rank's items until its device must wait.
template <bool kTimed>
void Progress::advance(std::uint32_t thread, ColdConnect& cold) {
  const Item* const items = world_->program->items.data();
  Cursor& cursor = cursors_[thread];
  // Ranks take turns every few items, too irregularly for the processor to see that each reads straight on.
  __builtin_prefetch(items + cursor.item + 16);
  while (true) {
    if (cursor.active) {
      // The phase has just completed; most groups have one.
      if (kTimed && cursor.member != kNone32) members_[cursor.member].free_at = cursor.finish[1];
      if (cursor.mixed && next_phase(cursor)) {
        assign(cursor.begin, cursor.finish);
        begin_phase<kTimed>(thread, cursor);
        if (cursor.pending > 0) return;
        continue;
      }
      if constexpr (kTimed)
        timing_->group_end(thread, cursor.item, cursor.group_end, cursor.finish, cursor.host);
      assign(cursor.last_group, cursor.finish);
      cursor.active = false;
      cursor.item = cursor.group_end;
    }
    while (cursor.item != cursor.end) {
      const Item item = items[cursor.item];
      const ItemOp op = item_op(item);
      if (op == ItemOp::kOp) break;
      if ((item_flags(item) & skip_) == 0) {
        if (op == ItemOp::kDecide && !decisions_open_) {
          cursor.parked = true;
          return;
        }
        if constexpr (kTimed) {
          if (op == ItemOp::kLaunch) {
            timing_->launch(thread, item, cursor.host);
          } else {
            timing_->step(thread, item, cursor.host);
          }
        }
      }
      ++cursor.item;
    }
    if (cursor.item == cursor.end) return;
    if (!begin_group<kTimed>(thread, cursor, cold)) return;
  }
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
  Lanes finish{};
  for (std::uint32_t m = first; m < last; ++m) {
    const Port& port = port_of(m);
    mismatched_ = mismatched_ || port.key != model.key || port.peer != model.peer;
    if constexpr (kTimed) raise(finish, members_[m].begin);
  }
  if constexpr (kTimed) {
    for (Nanoseconds& time : finish) time += model.duration;
  }
  ++communicator.index;
  communicator.arrivals = 0;
  for (std::uint32_t m = first; m < last; ++m) {
    MemberState& member = members_[m];
    const std::uint32_t thread = world_->member_thread[m];
    if constexpr (kTimed) raise(cursors_[thread].finish, finish);
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
  cursor.parked = !cold.enter(thread, cursor.item, cursor.host[0]);
  cursor.stop = cold.stop(thread);
  for (const std::uint32_t other : cold.changed()) {
    Cursor& woken = cursors_[other];
    woken.stop = cold.stop(other);
    if (other == thread || !woken.parked) continue;
    woken.parked = false;
    work_.push_back(other);
  }
  return !cursor.parked;
}

}  // namespace plumbline::verify
