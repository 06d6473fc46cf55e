#include "sim/channels.h"

#include <algorithm>
#include <utility>

namespace plumbline::sim {
namespace {

constexpr Bytes kSmall = Bytes{16} << 10;  // the largest message of the low-latency protocol

Bytes unit_of(Bytes message) { return message <= kSmall ? 8 : Bytes{512} << 10; }
std::int64_t units_of(Bytes message) {
  return std::max<std::int64_t>(1, (message + unit_of(message) - 1) / unit_of(message));
}

}  // namespace

void Channels::begin_step(const std::vector<EagerLimit>& limits) {
  channels_.assign(limits.size(), Channel{});
  for (std::size_t i = 0; i < limits.size(); ++i) channels_[i].limit = limits[i];
}

void Channels::add(const EagerLimit& limit) {
  channels_.emplace_back();
  channels_.back().limit = limit;
}

std::uint32_t Channels::activated(std::size_t channel, bool send) const {
  return channels_[channel].activated[send ? 1 : 0];
}

void Channels::push(Queue& queue, EntryId entry) {
  (*entries_)[entry].next = 0;
  if (queue.tail == 0) {
    queue.head = entry;
  } else {
    (*entries_)[queue.tail].next = entry;
  }
  queue.tail = entry;
}

EntryId Channels::pop(Queue& queue) {
  const EntryId entry = queue.head;
  queue.head = (*entries_)[entry].next;
  if (queue.head == 0) queue.tail = 0;
  return entry;
}

void Channels::drop(std::size_t index, EntryId entry, bool send) {
  Channel& channel = channels_[index];
  Queue& queue = send ? channel.sends : channel.receives;
  EntryId before = 0;
  for (EntryId at = queue.head; at != 0 && at != entry; at = (*entries_)[at].next) before = at;
  const EntryId next = (*entries_)[entry].next;
  if (queue.head == entry) {
    queue.head = next;
  } else {
    (*entries_)[before].next = next;
  }
  if (queue.tail == entry) queue.tail = before;
  if (channel.next_to_buffer == entry) channel.next_to_buffer = next;
  --channel.activated[send ? 1 : 0];
}

void Channels::lose(std::size_t index) {
  Channel& channel = channels_[index];
  for (EntryId send = channel.sends.head; send != 0; send = (*entries_)[send].next) --channel.activated[1];
  channel.sends = {};
  channel.next_to_buffer = 0;
}

void Channels::activate(std::size_t index, EntryId entry, bool send, Nanoseconds now,
                        std::vector<Transfer>& out) {
  Channel& channel = channels_[index];
  ++channel.activated[send ? 1 : 0];
  (*entries_)[entry].left = units_of((*entries_)[entry].bytes);
  push(send ? channel.sends : channel.receives, entry);
  if (send && channel.next_to_buffer == 0) channel.next_to_buffer = entry;
  if (model_->emulate_mismatch) {
    while (channel.sends.head != 0 && channel.receives.head != 0 && match_units(channel, now, out)) {
    }
  } else if (channel.sends.head != 0 && channel.receives.head != 0) {
    match(channel, now, out);
  }
  if (model_->send != SendCompletion::kRendezvous && !model_->registered) buffer(channel, now, out);
}

// The whole messages meet: times of both ends.
void Channels::pair(Channel& channel, EntryId send_id, EntryId receive_id, Nanoseconds now) {
  Entry& send = (*entries_)[send_id];
  Entry& receive = (*entries_)[receive_id];
  receive.ready = now;
  if (send.buffered) {
    receive.end = std::max(now, send.end);
  } else {
    send.ready = now;
    send.end = receive.end = channel.free_at = std::max(now, channel.free_at) + send.duration;
  }
}

void Channels::match(Channel& channel, Nanoseconds now, std::vector<Transfer>& out) {
  const EntryId send_id = pop(channel.sends);
  const EntryId receive_id = pop(channel.receives);
  const Entry& send = (*entries_)[send_id];
  pair(channel, send_id, receive_id, now);
  if (send.buffered) {
    channel.buffered -= send.bytes;
    channel.credits -= channel.limit.credits(send.bytes);
  } else if (channel.next_to_buffer == send_id) {
    channel.next_to_buffer = send.next;
  }
  out.push_back(
      {send_id, receive_id, 0, 0, std::min(send.bytes, (*entries_)[receive_id].bytes), !send.buffered});
}

// As many units as both heads have left. False: they never will.
bool Channels::match_units(Channel& channel, Nanoseconds now, std::vector<Transfer>& out) {
  const EntryId send_id = channel.sends.head;
  const EntryId receive_id = channel.receives.head;
  Entry& send = (*entries_)[send_id];
  Entry& receive = (*entries_)[receive_id];
  const bool equal = send.left == receive.left && send.bytes == receive.bytes;
  channel.out_of_step = channel.out_of_step || !equal;
  const Bytes unit = unit_of(send.bytes);
  if (unit_of(receive.bytes) != unit) {
    if (!std::exchange(channel.stuck, true))
      out.push_back({send_id, receive_id, 0, 0, 0, false, false, false});
    return false;
  }
  const std::int64_t units = std::min(send.left, receive.left);
  Transfer transfer{send_id, receive_id};
  transfer.from = (units_of(send.bytes) - send.left) * unit;
  transfer.to = (units_of(receive.bytes) - receive.left) * unit;
  transfer.bytes =
      std::max<Bytes>(0, std::min({units * unit, send.bytes - transfer.from, receive.bytes - transfer.to}));
  send.left -= units;
  receive.left -= units;
  transfer.last_of_send = send.left == 0;
  transfer.send_ends = send.left == 0 && !send.buffered;
  transfer.receive_ends = receive.left == 0;
  // The first part that meets takes the whole message's time; the ends that it decides are these.
  const Nanoseconds end =
      send.buffered ? std::max(now, send.end) : std::max(now, channel.free_at) + send.duration;
  if (!send.buffered) channel.free_at = end;
  if (transfer.send_ends) send.ready = now, send.end = end;
  if (transfer.receive_ends) receive.ready = now, receive.end = end;
  if (send.left == 0) {
    pop(channel.sends);
    if (send.buffered) {
      channel.buffered -= send.bytes;
      channel.credits -= channel.limit.credits(send.bytes);
    } else if (channel.next_to_buffer == send_id) {
      channel.next_to_buffer = channel.sends.head;
    }
  }
  if (receive.left == 0) pop(channel.receives);
  out.push_back(transfer);
  return true;
}

void Channels::buffer(Channel& channel, Nanoseconds now, std::vector<Transfer>& out) {
  const bool limited = model_->send == SendCompletion::kEager;
  while (channel.next_to_buffer != 0) {
    const EntryId send_id = channel.next_to_buffer;
    Entry& send = (*entries_)[send_id];
    if (send.registered) return;
    const int credits = channel.limit.credits(send.bytes);
    if (limited && channel.buffered + send.bytes > channel.limit.bytes) return;
    if (limited && channel.limit.messages > 0 && channel.credits + credits > channel.limit.messages) return;
    channel.buffered += send.bytes;
    channel.credits += credits;
    channel.next_to_buffer = send.next;
    send.buffered = true;
    send.ready = now;
    send.end = channel.free_at = std::max(now, channel.free_at) + send.duration;
    out.push_back({send_id, 0, 0, 0, send.bytes, true, false});
  }
}

std::vector<EntryId> Channels::never_received() const {
  std::vector<EntryId> sends;
  for (const Channel& channel : channels_) {
    for (EntryId send = channel.sends.head; send != 0; send = (*entries_)[send].next) {
      if ((*entries_)[send].buffered) sends.push_back(send);
    }
  }
  return sends;
}

}  // namespace plumbline::sim
