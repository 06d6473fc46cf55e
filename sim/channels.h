// Channels: point-to-point matching. One channel a (communicator, sender, receiver): its k-th send meets its
// k-th receive (N20), whatever they carry (N22); a channel moves one message at a time, in order.
//
// A transfer starts when both ends are active and the previous one is over. Where the model lets sends
// complete early (N32), a transfer also starts without its receive while what lies buffered on the channel, its
// own bytes included, stays within the link's limit; the receive then completes when both it is active and the
// transfer is over. Sends complete in order.
//
// Ends of different size match nevertheless, and the difference is reported elsewhere. Where the model emulates
// what NCCL does with them (N23, N24), a channel is a row of units - 8 bytes of a small message, 512 KiB of a
// larger one: what is left over of a send goes to the next receive, a receive waits for what is missing, and a
// small and a large end wait for ever, since they use different buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/entry.h"
#include "sim/nccl_model.h"

namespace plumbline::sim {

// What became certain when an entry became active.
struct Transfer {
  EntryId send = 0;
  EntryId receive = 0;  // 0: the send is buffered, its receive is still to come
  // What moves, in bytes: from and to offsets of the two ends, and how many.
  Bytes from = 0;
  Bytes to = 0;
  Bytes bytes = 0;
  bool send_ends = true;     // the send's end is decided by this
  bool receive_ends = true;  // the receive's is
  bool last_of_send = true;  // nothing of the send comes after
};

class Channels {
 public:
  // Both outlive this.
  Channels(std::vector<Entry>& entries, const NcclModel& model) : entries_(&entries), model_(&model) {}

  // One limit a channel.
  void begin_step(const std::vector<EagerLimit>& limits);
  // One more channel, numbered after those that there are.
  void add(const EagerLimit& limit);
  // `entry` is active from `now` on. Sets `ready` and `end` of entries whose end is thereby decided and
  // appends what happened to `out`: a buffered send has its end; a match gives both ends theirs, unless the
  // send was buffered before.
  void activate(std::size_t channel, EntryId entry, bool send, Nanoseconds now, std::vector<Transfer>& out);
  // An active operation without a decided end leaves the channel, as if it had never been there.
  void drop(std::size_t channel, EntryId entry, bool send);
  // What the sender has completed early and nobody has received is lost with its process (N39).
  void lose(std::size_t channel);

  // Number of sends, or receives, of the channel that are or were active.
  std::uint32_t activated(std::size_t channel, bool send) const;
  // Whether ends of different size left the channel out of step: what waits there may wait for ever.
  bool out_of_step(std::size_t channel) const { return channels_[channel].out_of_step; }
  // Sends that completed although no receive ever came, in channel order.
  std::vector<EntryId> never_received() const;

 private:
  struct Queue {
    EntryId head = 0;
    EntryId tail = 0;
  };
  struct Channel {
    Queue sends, receives;       // active and unmatched; one of the two is empty, unless emulation is stuck
    EntryId next_to_buffer = 0;  // first of `sends` that is not buffered
    EagerLimit limit;
    Bytes buffered = 0;
    int credits = 0;  // of `limit`, taken by buffered sends
    Nanoseconds free_at = 0;
    std::uint32_t activated[2] = {0, 0};  // receives, sends
    bool out_of_step = false;
    bool stuck = false;  // a small and a large end stand against each other
  };

  void push(Queue& queue, EntryId entry);
  EntryId pop(Queue& queue);
  void match(Channel& channel, Nanoseconds now, std::vector<Transfer>& out);
  void pair(Channel& channel, EntryId send, EntryId receive, Nanoseconds now);
  bool match_units(Channel& channel, Nanoseconds now, std::vector<Transfer>& out);
  void buffer(Channel& channel, Nanoseconds now, std::vector<Transfer>& out);

  std::vector<Entry>* entries_;
  const NcclModel* model_;
  std::vector<Channel> channels_;
};

}  // namespace plumbline::sim
