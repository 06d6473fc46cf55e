// LoopbackTransport: several ranks on one device, without NCCL, by stream memory operations. A message is a rendezvous
// that the device decides, in whatever order the hosts enqueue its ends, and no processor is held while one waits:
//
//   sender's stream                          receiver's stream
//     copy slot -> stage of the channel        wait until published >= k
//     published = k                            copy stage -> slot
//     ... wait until taken >= k                taken = k
//
// k counts the channel's messages (communicator, sender, receiver). The next message of a channel cannot touch the
// stage before this one is taken, since the sender waits for that. Waiting for an event would not do: one that is
// not yet recorded holds nobody back.
//
// Operations of a group run side by side (N12). The sends come first and hold up nobody: each publishes, and their
// waits for being taken end the group. All receives but one get a helper stream, forked from the user's stream and
// joined to it; those of one channel share one, so that they keep their order, and so do several sends of one channel,
// of which each but the first waits for its stage. Groups of a communicator follow one another on a rank whatever their
// stream (N6), by an event. A group of several communicators, or of collectives and messages, runs piece by piece in
// the order in which NCCL would (N15, N16).
//
// Receivers copy by cudaMemcpyAsync, or have NCCL do it: a send to oneself on a communicator of one rank (self_send.h).
// Then NCCL's own kernels, groups and enqueueing run on the user's streams, between the same waits.
//
// A collective meets in host memory: each member copies its contribution there and says so; the first member's stream
// waits for all, reduces in member order with the simulator's own code, and says so; each copies its result back.
//
// A waiting stream blocks the hardware queue it is in, so every stream needs a queue of its own: at most kQueues
// streams, and CUDA_DEVICE_MAX_CONNECTIONS is raised to that before the first CUDA call (raise_connections()). Where a
// Program needs more, all streams of a rank that carry nothing but collectives become one, if the Program completes
// under certification: there all communication of a rank runs in host order, whatever its stream, and so it may here.
//
// A Program that deadlocks hangs here too; abort() then writes the counters, again and again until streams run dry.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cuda/self_send.h"
#include "backends/cuda/transport.h"

namespace plumbline::cuda {

constexpr int kQueues = 32;

// Sets CUDA_DEVICE_MAX_CONNECTIONS to kQueues unless it is set. kState when it is set to less.
Status raise_connections();

enum class Mover : std::uint8_t {
  kCopy,
  kSelfSend,  // wants NCCL
};

class LoopbackTransport final : public Transport {
 public:
  // All on one device.
  explicit LoopbackTransport(std::vector<LocalRank> ranks, Mover mover = Mover::kCopy);

  std::string level() const override;
  Result<std::vector<int>> stream_rows(const LinkedProgram& linked) override;
  Status set_program(const LinkedProgram& linked) override;
  Poll ready() override { return {}; }
  Result<bool> enqueue(const TransportCall& call) override;
  Poll issued(std::uint32_t /*thread*/) override { return {}; }
  Result<std::uint64_t> comm(std::uint32_t thread, const CommCall& call,
                             const LinkedCommCall& linked) override;
  Poll through(std::uint64_t /*number*/) override { return {}; }
  void abort() override;

  // Streams of the last Program on the device: the backend's, and helpers.
  int streams() const { return streams_; }

 private:
  using ChannelKey = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // communicator, sender, receiver
  struct Channel {
    Bytes largest = 0;
    Memory stage;
    std::uint32_t sent = 0, received = 0;         // messages enqueued
    std::size_t published = 0, taken = 0;         // words of counters_
    std::size_t line = 0;                         // of self_sends_
    std::deque<Bytes> open_sends, open_receives;  // sizes of messages whose other end is not enqueued yet
  };
  struct Meeting {
    Bytes largest = 0;
    std::vector<Memory> stages;        // by member, host memory
    std::vector<std::size_t> arrived;  // words, by member
    std::size_t over = 0;              // word
    std::vector<std::uint32_t> calls;  // enqueued, by member
    std::vector<TransportOp> first;    // of each call: what the first member to enqueue it asked for
  };
  // The streams of a rank's groups in one communicator.
  struct Lane {
    std::size_t helpers_wanted = 0;
    std::vector<Stream> helpers;
    std::vector<EventHandle> joins;  // one a helper
    EventHandle last = nullptr;      // end of its last group; null: none yet
    StreamHandle last_stream = nullptr;
  };
  using LaneKey = std::pair<std::uint32_t, std::int32_t>;  // thread, communicator
  struct Reduction;

  Status plan();
  void plan_thread(const LinkedProgram& on, std::uint32_t thread, const std::vector<int>& row_of);
  int count_streams(const LinkedProgram& linked, const std::vector<int>& rows);
  Status make();
  Status piece(const TransportCall& call, const std::vector<TransportOp>& ops);
  Status messages(const TransportCall& call, Lane& lane, const std::vector<TransportOp>& ops);
  struct Line {
    std::int32_t peer = -1;
    bool send = false;
    std::size_t messages = 0;
    StreamHandle stream = nullptr;
    bool beside() const { return !send || messages > 1; }
  };
  // Without its wait, which a send in a line of its own has at the end of the group.
  Status message(const TransportOp& op, StreamHandle stream, bool waits);
  Status wait_until_taken(const TransportOp& op, StreamHandle stream);
  Status collective(const TransportOp& op, StreamHandle stream);
  Status write(StreamHandle stream, std::size_t word, std::uint32_t value);
  Status wait(StreamHandle stream, std::size_t word, std::uint32_t value);
  Status copy(std::byte* to, const std::byte* from, Bytes bytes, StreamHandle stream);
  Status order(StreamHandle before, StreamHandle after, EventHandle event);
  const Libraries& on() const { return *device_.libraries; }

  std::vector<LocalRank> ranks_;
  Device device_;
  const LinkedProgram* linked_ = nullptr;
  Memory counters_;  // words that streams write and wait for
  std::size_t words_ = 0;
  std::map<ChannelKey, Channel> channels_;
  std::map<std::int32_t, Meeting> meetings_;
  std::map<LaneKey, Lane> lanes_;
  std::unique_ptr<SelfSends> self_sends_;  // null: cudaMemcpyAsync
  EventPool events_;
  EventHandle fork_ = nullptr;
  std::vector<int> rows_;  // of linked_
  int streams_ = 0;
  bool aborted_ = false;
};

}  // namespace plumbline::cuda
