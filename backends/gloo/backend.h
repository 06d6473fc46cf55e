// GlooBackend: one rank of a run in a process of its own, under NCCL's rules in software.
//
// What the host enqueues becomes a graph, as in the simulator (sim/device_graph.h): streams are chains (N4), a
// communicator is a chain whatever the stream (N6), and a group is one node that ends with its last operation
// (N11). A node starts when all it depends on is complete. Kernels run on the thread that drives the backend,
// one after another; each communicator has a lane, a thread that posts one group, waits until all of it is
// through, and only then takes the next. With strict host order a group also waits for the group that the host
// enqueued before it, whatever its communicator.
//
// Slots are the simulator's too: a host that runs ahead never touches what earlier operations still use.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/gloo/collectives.h"
#include "backends/gloo/matching.h"
#include "backends/gloo/transport.h"
#include "engine/runtime/backend.h"
#include "engine/runtime/rank_status.h"
#include "engine/runtime/run_record.h"
#include "sim/device_graph.h"
#include "sim/findings.h"
#include "sim/slots.h"

namespace plumbline::gloo {

struct GlooOptions {
  bool strict_host_order = false;
  bool launch_blocking = false;  // the host waits for each group, as with CUDA_LAUNCH_BLOCKING=1
  bool record_events = true;
  bool record_memory = true;
  Nanoseconds epoch = 0;  // steady clock at the run's start: times are counted from it
};

// An operation of a group, from the moment the host enqueued it.
struct Operation {
  std::uint32_t item = 0;
  std::int32_t communicator = 0;
  std::int32_t position = 0;  // own place in the communicator
  Rank peer = -1;             // p2p: the peer; else the root, -1 for none
  std::int32_t peer_position = -1;
  sim::NodeId node = 0;
  sim::Use use;
  Nanoseconds created = 0, start = -1, end = -1;
};

class GlooBackend final : public Backend, public RankActivity, private SlotStore {
 public:
  // Both outlive the backend.
  GlooBackend(Transport& transport, Worker& worker, GlooOptions options);
  ~GlooBackend() override;

  // Backend. The thread must be that of the transport's rank.
  Status begin_step(const LinkedProgram& linked) override;
  Result<Issued> launch(std::uint32_t thread, std::uint32_t item_index, Item item) override;
  Result<Issued> group(const GroupCall& call) override;
  Status stream_wait(std::uint32_t thread, int stream, Token token) override;
  Result<Token> marker(std::uint32_t thread, int stream) override;
  Status free(std::uint32_t thread, std::uint32_t item_index, SlotRef slot) override;
  Result<Token> read(std::uint32_t thread, std::uint32_t item_index, unsigned variable) override;
  Result<double> value(std::uint32_t thread, unsigned variable) override;
  Poll poll(std::uint32_t thread, Token token) override;

  // Driver
  std::uint32_t thread() const { return thread_; }
  void set_step(int step) { step_ = step; }
  // Runs the kernel whose turn it is; false: there is none.
  Result<bool> run_kernel();
  // Sleeps until a kernel may run, `token` is done or a lane has failed; without a token (0), until all is complete.
  // What completes meanwhile and changes none of these does not wake the thread.
  Status wait(Token token);
  bool idle() const;
  // Events and memory points in the record's order; findings of the step, of which `arm` was taken.
  std::vector<Finding> end_step(int arm, RunRecord& record);
  Nanoseconds now() const;

  // RankActivity: any thread.
  std::uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }
  std::optional<std::uint32_t> running_item() const override;
  std::vector<EnqueuedOperation> operations() const override;

 private:
  struct Lane {
    Membership membership;
    std::deque<sim::NodeId> work;
    bool woken = false;  // in `to_wake_`
    std::condition_variable wake;
    std::thread thread;
  };
  struct Stream {
    sim::NodeId tail = 0;
    std::vector<sim::NodeId> waits;
  };
  struct EventRow {
    RunEvent event;
    std::uint32_t item = 0;
  };

  const Program& program() const { return *linked_->program; }
  const Endpoint& endpoint_of(const Operation& operation) const {
    return program().endpoints[item_ref(program().items[operation.item])];
  }
  Status bind(const LinkedProgram& linked);
  Status bind_persistent();
  void note_memory();
  void add_operations(const GroupCall& call);
  void enqueue(sim::NodeId node, int stream);
  sim::NodeId tail(int stream);
  void settle();
  void wake_lanes(std::unique_lock<std::mutex>& lock);
  bool host_may_go_on(sim::NodeId awaited) const;
  void start_read(sim::NodeId node);
  void finish(sim::NodeId node);
  void record_kernel(const sim::Node& node);
  void record_group(const sim::Node& node);
  SlotMemory slot(SlotRef ref) override;
  void run_lane(Lane& lane);
  Status transfer(Lane& lane, sim::NodeId node, std::vector<Nanoseconds>& ends);

  Transport& transport_;
  Worker& worker_;
  GlooOptions options_;
  const LinkedProgram* linked_ = nullptr;
  std::uint32_t thread_ = 0;
  int step_ = 0;
  Matching matching_;

  mutable std::mutex mutex_;  // over everything below; never held while a kernel or a transfer runs
  std::condition_variable host_wake_;
  bool host_sleeps_ = false, stopping_ = false;
  sim::NodeId awaited_ = 0;  // by the host that sleeps
  // Lanes with work that sleep on. The host wakes them when it is about to run a kernel or to sleep, once for all that
  // it has enqueued, and never while it holds the mutex, which is what they want first.
  std::vector<Lane*> to_wake_;
  std::optional<Error> error_;
  sim::DeviceGraph graph_;
  std::vector<Operation> operations_;  // nodes' entries
  std::vector<sim::Use> uses_;
  std::vector<Stream> streams_;
  std::vector<sim::NodeId> communicator_tail_;
  sim::NodeId last_group_ = 0;
  std::deque<sim::NodeId> kernels_;  // may start, in order
  sim::NodeId running_ = 0;
  Nanoseconds kernel_cpu_ = 0;  // of the kernel that has just ended
  std::vector<double> values_;
  std::vector<EventRow> events_;
  std::vector<MemoryPoint> memory_;
  Bytes noted_ = -1;
  sim::FindingLog log_;
  sim::PersistentMemory persistent_;
  std::optional<sim::Slots> slots_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by communicator
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<std::uint32_t> running_item_{sim::kNoItem};
};

}  // namespace plumbline::gloo
