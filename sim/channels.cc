#include "sim/channels.h"

#include <algorithm>

namespace plumbline::sim {

void Channels::begin_step(std::size_t channels) { channels_.assign(channels, Channel{}); }

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

void Channels::activate(std::size_t index, EntryId entry, bool send, Nanoseconds now,
                        std::vector<Transfer>& out) {
  Channel& channel = channels_[index];
  ++channel.activated[send ? 1 : 0];
  push(send ? channel.sends : channel.receives, entry);
  if (send && channel.next_to_buffer == 0) channel.next_to_buffer = entry;
  if (channel.sends.head != 0 && channel.receives.head != 0) match(channel, now, out);
  if (model_->send != SendCompletion::kRendezvous) buffer(channel, now, out);
}

void Channels::match(Channel& channel, Nanoseconds now, std::vector<Transfer>& out) {
  const EntryId send_id = pop(channel.sends);
  const EntryId receive_id = pop(channel.receives);
  Entry& send = (*entries_)[send_id];
  Entry& receive = (*entries_)[receive_id];
  receive.ready = now;
  if (send.buffered) {
    channel.buffered -= send.bytes;
    receive.end = std::max(now, send.end);
  } else {
    if (channel.next_to_buffer == send_id) channel.next_to_buffer = send.next;
    send.ready = now;
    send.end = receive.end = channel.free_at = std::max(now, channel.free_at) + send.duration;
  }
  out.push_back({send_id, receive_id});
}

void Channels::buffer(Channel& channel, Nanoseconds now, std::vector<Transfer>& out) {
  while (channel.next_to_buffer != 0) {
    const EntryId send_id = channel.next_to_buffer;
    Entry& send = (*entries_)[send_id];
    if (model_->send == SendCompletion::kEager && channel.buffered + send.bytes > model_->eager_bytes) return;
    channel.buffered += send.bytes;
    channel.next_to_buffer = send.next;
    send.buffered = true;
    send.ready = now;
    send.end = channel.free_at = std::max(now, channel.free_at) + send.duration;
    out.push_back({send_id, 0});
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
