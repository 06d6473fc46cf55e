// Channels: point-to-point matching. One channel a (communicator, sender, receiver): its k-th send meets its
// k-th receive (N20), whatever they carry (N22); a channel moves one message at a time, in order.
//
// A transfer starts when both ends are active and the previous one is over. Where the model lets sends
// complete early (N32), a transfer also starts without its receive while the bytes that lie buffered on the
// channel, its own included, stay within the limit; the receive then completes when both it is active and the
// transfer is over. Sends complete in order.
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
};

class Channels {
 public:
  // Both outlive this.
  Channels(std::vector<Entry>& entries, const NcclModel& model) : entries_(&entries), model_(&model) {}

  void begin_step(std::size_t channels);
  // `entry` is active from `now` on. Sets `ready` and `end` of entries whose end is thereby decided and
  // appends what happened to `out`: a buffered send has its end; a match gives both ends theirs, unless the
  // send was buffered before.
  void activate(std::size_t channel, EntryId entry, bool send, Nanoseconds now, std::vector<Transfer>& out);

  // An active operation without a decided end leaves the channel, as if it had never been there.
  void drop(std::size_t channel, EntryId entry, bool send);

  // Number of sends, or receives, of the channel that are or were active.
  std::uint32_t activated(std::size_t channel, bool send) const;
  // Sends that completed although no receive ever came, in channel order.
  std::vector<EntryId> never_received() const;

 private:
  struct Queue {
    EntryId head = 0;
    EntryId tail = 0;
  };
  struct Channel {
    Queue sends, receives;       // active and unmatched; one of the two is empty
    EntryId next_to_buffer = 0;  // first of `sends` that is not buffered
    Bytes buffered = 0;
    Nanoseconds free_at = 0;
    std::uint32_t activated[2] = {0, 0};  // receives, sends
  };

  void push(Queue& queue, EntryId entry);
  EntryId pop(Queue& queue);
  void match(Channel& channel, Nanoseconds now, std::vector<Transfer>& out);
  void buffer(Channel& channel, Nanoseconds now, std::vector<Transfer>& out);

  std::vector<Entry>* entries_;
  const NcclModel* model_;
  std::vector<Channel> channels_;
};

}  // namespace plumbline::sim
