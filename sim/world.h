// World: the simulated ranks, devices and links, as a Backend. It is told what hosts enqueue, and moves what
// it was told forward in virtual time; the driver (sim/simulator.cc) alternates between the two.
//
// A rank is a device; its host threads share the streams, the slots and the launch order of it.
//
// Files: world.cc - the Backend's calls, in host order; world_connect.cc - hosts held by connections;
// world_comm.cc - calls on communicators; world_failures.cc - processes that end; world_graphs.cc - CUDA graphs;
// world_live.cc - calls that come one at a time; world_run.cc - what starts and completes on the devices, in virtual
// time; channels, collectives, connect, lifecycle, slots, device_graph, cores - one rule each.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/program/link.h"
#include "engine/runtime/backend.h"
#include "engine/runtime/run_record.h"
#include "sim/channels.h"
#include "sim/collectives.h"
#include "sim/connect.h"
#include "sim/connect_all.h"
#include "sim/cores.h"
#include "sim/device_graph.h"
#include "sim/entry.h"
#include "sim/findings.h"
#include "sim/lifecycle.h"
#include "sim/live.h"
#include "sim/payloads.h"
#include "sim/simulator.h"
#include "sim/slots.h"

namespace plumbline::sim {

class World final : public Backend, private SlotStore {
 public:
  World(SimOptions options, std::vector<Worker*> workers);

  // Backend
  Status begin_step(const LinkedProgram& linked) override;
  Result<Issued> launch(std::uint32_t thread, std::uint32_t item_index, Item item) override;
  Result<Issued> group(const GroupCall& call) override;
  Status stream_wait(std::uint32_t thread, int stream, Token token) override;
  Result<Token> marker(std::uint32_t thread, int stream) override;
  Status free(std::uint32_t thread, std::uint32_t item_index, SlotRef slot) override;
  Result<Token> read(std::uint32_t thread, std::uint32_t item_index, unsigned variable) override;
  Result<double> value(std::uint32_t thread, unsigned variable) override;
  Result<Issued> comm(std::uint32_t thread, std::uint32_t item_index, Item item) override;
  Result<Token> graph(std::uint32_t thread, int stream, bool begin) override;
  Status failure(std::uint32_t thread, std::uint32_t item_index, Item item) override;
  Poll poll(std::uint32_t thread, Token token) override;

  // Driver
  void bind(const LinkedProgram& linked);
  void set_step(int step) { step_ = step; }
  // The thread's host is blocked on the token; wake it when it is done.
  void wake_on(std::uint32_t thread, Token token);
  // Starts all that may start now. False: a worker failed.
  bool settle();
  // Moves virtual time to the earliest completion and completes it; false: there is none.
  bool fire();
  bool events_pending() const { return !events_.empty() || (cores_ && !cores_->idle()); }
  Chooser* chooser() const { return options_.chooser; }
  // Exploring: gives one of the groups that ask for processors its place in line; false: none asks.
  bool choose_request(Chooser& chooser);
  // The process of the rank ends, and with it everything that it has under way.
  void end_process(Rank rank);
  bool ended(Rank rank) const { return ended_[static_cast<std::size_t>(rank)]; }
  // Hosts to go on, in rank order.
  std::vector<std::uint32_t> take_woken();
  // Ends the step: leftovers, leaks, events and memory points in the record's order.
  void end_step(bool completed, RunRecord& record);

  Nanoseconds now() const { return now_; }
  bool idle() const { return graph_.incomplete() == 0; }
  const std::optional<Error>& error() const { return error_; }
  FindingLog& log() { return log_; }

  // Live (sim/live.h). `calls` outlives the World, and is set before it is bound.
  void set_live(LiveCalls* calls) { live_ = calls; }
  void grow();
  // The row of the thread's window describes an operation from now on.
  void add_route(std::uint32_t thread, std::uint32_t row);
  // Like marker(), but never something that was there before: its end is when the stream got to it.
  NodeId point(std::uint32_t thread, int stream);
  void end_kernel(NodeId node, Nanoseconds at);  // or now, if that is past

  // For the explanation of a deadlock.
  const LinkedProgram& linked() const { return *linked_; }
  const Program& program() const { return *linked_->program; }
  const DeviceGraph& graph() const { return graph_; }
  const NcclModel& model() const { return options_.model; }
  const std::vector<Entry>& entries() const { return entries_; }
  const Channels& channels() const { return channels_; }
  const Collectives& collectives() const { return collectives_; }
  const ColdConnections& connections() const { return connections_; }
  const Lifecycle& lifecycle() const { return lifecycle_; }
  const CollectiveConnections& collective_connections() const { return collective_connections_; }
  // The host threads of a rank: [first, last).
  std::pair<std::uint32_t, std::uint32_t> threads_of(Rank rank) const {
    return {first_thread_[static_cast<std::size_t>(rank)], first_thread_[static_cast<std::size_t>(rank) + 1]};
  }
  // What others wait for when they wait for the node: of one in a graph that is launched, the whole graph (N18).
  NodeId seen(NodeId node) const;
  std::int32_t channel_of(std::uint32_t route) const { return routes_[route].channel; }
  // Agents that set up connections: one a host thread, then those that work for nonblocking calls.
  std::uint32_t agents() const { return static_cast<std::uint32_t>(agents_.size()); }
  bool connecting(std::uint32_t agent) const { return agents_[agent].held.connect != 0; }
  std::uint32_t thread_of(std::uint32_t agent) const { return agents_[agent].thread; }
  std::uint32_t item_of(std::uint32_t agent) const { return agents_[agent].item; }
  // Whose connections the node stands for, or the entry waits for.
  std::uint32_t agent_of(NodeId node) const;
  std::uint32_t agent_of_entry(EntryId entry) const;
  const Endpoint& endpoint_of(const Entry& entry) const {
    return program().endpoints[item_ref(program().items[entry.item])];
  }

 private:
  // What is known of a (thread, endpoint) for the whole run; parallel to LinkedProgram::endpoints.
  struct Route {
    std::int32_t channel = -1;  // p2p
    std::uint32_t member = 0;   // (communicator, position), numbered over all communicators
    Nanoseconds duration = 0;   // p2p: the transfer
    bool connected = false;     // cold: known to be
  };
  struct Stream {
    NodeId tail = 0;
    std::vector<NodeId> waits;  // for the next node of the stream
  };
  struct EventRow {
    RunEvent event;
    std::uint32_t item = 0;
  };
  // A group that waits for cold connections, and its host with it unless its communicators are nonblocking.
  struct Held {
    EntryId first = 0;
    std::uint32_t count = 0;
    std::uint32_t item = 0;
    int stream = 0;
    bool after_compute = false;
    NodeId connect = 0;
    NodeId done = 0;
  };
  // Who sets up connections: the first are the hosts of the threads, each for the call that it is in; the others work
  // for nonblocking calls, whose hosts have gone on (N2, N79).
  struct Agent {
    std::uint32_t thread = 0;
    std::uint32_t item = 0;  // the group whose connections were set up last
    Held held;               // connect is 0: none
  };
  struct Device {
    std::vector<Stream> streams;
    NodeId last_group = 0;
    NodeId last_start = 0;       // start of the last group (launch order, N47)
    std::vector<NodeId> queues;  // start of the last node of each hardware queue (N48)
    std::deque<NodeId>
        parked;  // groups that wait for processors, in the order in which they became able to start
    std::vector<NodeId>
        requests;        // exploring: groups that are able to start and have no place in that order yet
    int processors = 0;  // held by running groups
    NodeId legacy = 0;   // last node of the legacy default stream (N53)
    std::set<unsigned> loaded;  // kernels whose code is loaded (N51); kept from step to step
    Bytes noted = -1;
  };
  // What a graph launch holds: streams of its own, which begin at its launch.
  struct Graph {
    bool open = false;
    int stream = 0;    // that it is launched on
    NodeId start = 0;  // its launch, which may come once the host has got to the graph's end
    std::vector<Stream> streams;
  };
  struct ThreadState {
    std::vector<double> values;
    Graph graph;
    std::vector<std::pair<NodeId, NodeId>> graphs;  // that are launched: first and last node, ascending
    std::vector<EventRow> events;
    std::vector<MemoryPoint> memory;
  };
  // A host that waits for what a communicator has to do, or for an error of it.
  struct Watch {
    NodeId node = 0;
    std::int32_t communicator = -1, position = -1;
  };
  struct Event {
    Nanoseconds time;
    std::uint32_t thread;
    NodeId node;
    bool operator>(const Event& other) const {
      if (time != other.time) return time > other.time;
      return thread != other.thread ? thread > other.thread : node > other.node;
    }
  };

  Device& device_of(std::uint32_t thread) {
    return devices_[static_cast<std::size_t>(program().threads[thread].rank)];
  }
  Slots& slots_of(std::uint32_t thread) {
    return slots_[static_cast<std::size_t>(program().threads[thread].rank)];
  }

  std::vector<Stream>& streams_of(std::uint32_t thread) {
    return threads_[thread].graph.open ? threads_[thread].graph.streams : device_of(thread).streams;
  }

  // world.cc
  void bind_channels();
  Status bind_persistent();
  std::uint32_t route_of(std::uint32_t thread, Item item) const;
  Status check_group(const GroupCall& call) const;
  bool refused(const GroupCall& call);
  bool refused_self(const GroupCall& call);
  bool mixes_capture(const GroupCall& call);
  std::vector<int> other_streams(EntryId first, std::uint32_t count, int stream) const;
  std::uint32_t add_entries(const GroupCall& call);
  void enqueue(NodeId node, int stream);
  NodeId enqueue_group(std::uint32_t thread, std::uint32_t item, EntryId first, std::uint32_t count,
                       int stream, bool after_compute);
  std::vector<EntryId> piece_ends(EntryId begin, EntryId end, bool p2p);
  NodeId tail(std::uint32_t thread, int stream, std::uint32_t item);
  NodeId start_point(NodeId node);
  std::uint32_t idle_agent(std::uint32_t thread);
  std::optional<Issued> begin_connections(const GroupCall& call, EntryId first, std::uint32_t count);
  bool hold(std::uint32_t agent);
  bool connect_next(std::uint32_t agent);
  bool connect_collectives(std::uint32_t agent);
  void mark_connecting(const Held& held, NodeId until);
  void release_held(std::uint32_t agent);
  void stop_failed();
  void finish_connections();
  void report_faults();
  void note_memory(std::uint32_t thread);

  // world_comm.cc
  void bind_queues();
  void refuse(const Refusal& refusal, std::uint32_t thread, std::uint32_t item, const char* how = "returns");
  void depend_on_queue(NodeId node, std::int32_t communicator, std::int32_t position);
  void forget_connections(std::uint32_t thread, const LinkedCommCall& linked);
  void start_comm(NodeId node);
  void abort_member(std::int32_t communicator, std::int32_t position);
  void abort_kernel(NodeId node);

  // world_failures.cc
  void start_fault(NodeId node);
  void end_groups(Rank rank);
  void cut(NodeId node);
  void drop_held(std::uint32_t agent);
  bool background(std::uint32_t agent) const { return agent >= threads_.size(); }
  std::optional<Refusal> faulted(std::uint32_t thread) const;
  void miss_peers(EntryId entry);
  void report_error(std::int32_t communicator, std::int32_t position, std::uint32_t thread,
                    std::uint32_t item, const Refusal& refusal);
  void break_off();

  // world_run.cc
  SlotMemory slot(SlotRef ref) override;
  void start(NodeId node);
  bool admit(NodeId node);
  void release_processors(NodeId node);
  void start_kernel(NodeId node);
  bool fire_core();
  void start_group(NodeId node);
  void start_read(NodeId node);
  void activate(EntryId entry);
  PayloadLedger::Label label_of(const Entry& entry) const;
  void note_sent(const Entry& send, const std::byte* data);
  void note_received(const Entry& receive, const std::byte* data);
  std::byte* data_of(const Entry& entry);
  void deliver(const Transfer& transfer);
  void compare(const Entry& send, const Entry& receive);
  void collective(const std::vector<EntryId>& members);
  bool hangs(const std::vector<EntryId>& members) const;
  void decided(EntryId entry);
  void complete(NodeId node);
  void wake_hosts(NodeId node);
  void record_kernel(const Node& node);
  void record_group(const Node& node);
  void schedule(NodeId node, Nanoseconds time);

  SimOptions options_;
  std::vector<Worker*> workers_;
  LiveCalls* live_ = nullptr;
  const LinkedProgram* linked_ = nullptr;
  int step_ = 0;
  Nanoseconds now_ = 0;

  std::vector<Route> routes_;
  std::vector<std::uint32_t> member_base_;   // by communicator
  std::vector<std::uint32_t> queue_of_;      // by member: the member whose queue it shares (N7), or itself
  std::vector<std::uint32_t> first_thread_;  // by rank, one more at the end
  std::vector<EagerLimit> channel_limits_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t> live_channels_;

  DeviceGraph graph_;
  std::vector<Entry> entries_;  // 0 is nobody
  std::vector<Use> uses_;       // of kernels and reads
  std::vector<ThreadState> threads_;
  std::vector<Device> devices_;      // by rank
  std::vector<NodeId> member_tail_;  // last group of a (communicator, position), by queue: N6
  std::vector<Event> events_;        // a heap, earliest first
  std::optional<Cores> cores_;       // where ranks share them: kernels that run
  std::vector<std::uint32_t> woken_;
  std::map<NodeId, std::vector<std::uint32_t>> other_hosts_;  // threads that wait for another thread's node
  std::vector<Slots> slots_;                                  // by rank
  std::vector<PersistentMemory> persistent_;
  Channels channels_;
  Collectives collectives_;
  Lifecycle lifecycle_;
  ColdConnections connections_;
  ConnectionMap connection_map_;
  CollectiveConnections collective_connections_;
  CollectiveMap collective_map_;
  std::vector<bool> ended_, faulted_;  // by rank
  bool any_ended_ = false;
  std::vector<Watch> watches_;
  std::vector<Agent> agents_;
  std::vector<std::uint32_t> resumed_;  // agents held by a collective's connection that is up
  std::map<EntryId, Memory> buffered_;  // contents of buffered sends
  std::vector<Transfer> transfers_;     // scratch
  NodeId running_ = 0;                  // the kernel whose worker is being called
  PayloadLedger payloads_;
  FindingLog log_;
  std::optional<Error> error_;
};

}  // namespace plumbline::sim
