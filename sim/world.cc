#include "sim/world.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "sim/plan.h"

namespace plumbline::sim {

World::World(SimOptions options, std::vector<Worker*> workers)
    : options_(std::move(options)),
      workers_(std::move(workers)),
      channels_(entries_, options_.model),
      collectives_(entries_) {}

void World::bind(const LinkedProgram& linked) {
  linked_ = &linked;
  const Program& program = *linked.program;
  PL_ASSERT(workers_.empty() || workers_.size() == program.threads.size());
  member_base_.clear();
  std::uint32_t members = 0;
  for (const Communicator& communicator : linked.communicators) {
    member_base_.push_back(members);
    members += static_cast<std::uint32_t>(communicator.members.size());
  }
  member_tail_.assign(members, 0);
  bind_queues();
  bind_channels();
  threads_.assign(program.threads.size(), ThreadState{});
  agents_.assign(program.threads.size(), Agent{});
  for (std::uint32_t t = 0; t < agents_.size(); ++t) agents_[t].thread = t;
  const auto ranks = static_cast<std::size_t>(program.grid.world());
  devices_.assign(ranks, Device{});
  if (options_.time.cores() > 0)
    cores_.emplace(options_.time.cores(), options_.time.interference(),
                   options_.time.machine(static_cast<Rank>(ranks) - 1) + 1);
  persistent_.resize(ranks);
  slots_.clear();
  slots_.reserve(ranks);
  first_thread_.clear();
  for (std::uint32_t t = 0; t < program.threads.size(); ++t) {
    const auto rank = static_cast<std::size_t>(program.threads[t].rank);
    if (rank < first_thread_.size()) continue;
    first_thread_.push_back(t);
    slots_.emplace_back(program, t, log_, workers_.empty() ? nullptr : &persistent_[rank]);
  }
  PL_ASSERT_MSG(workers_.empty() || ranks == program.threads.size(), "workers take one host thread a rank");
  first_thread_.push_back(static_cast<std::uint32_t>(program.threads.size()));
}

// Numbers the channels, and works out what each (thread, endpoint) row needs at run time.
void World::bind_channels() {
  const Program& program = *linked_->program;
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // communicator, sender, receiver
  std::vector<std::pair<Key, std::size_t>> keys;
  routes_.assign(linked_->endpoints.size(), Route{});
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    const LinkedProgram::Window& window = linked_->windows[t];
    for (std::uint32_t i = 0; i < window.count; ++i) {
      const LinkedEndpoint& linked = linked_->endpoints[window.base + i];
      if (linked.communicator < 0) continue;
      const Endpoint& endpoint = program.endpoints[window.first + i];
      Route& route = routes_[window.base + i];
      route.member = member_base_[static_cast<std::size_t>(linked.communicator)] +
                     static_cast<std::uint32_t>(linked.position);
      if (!is_p2p(endpoint.kind)) continue;
      const bool send = endpoint.kind == EndpointKind::kSend;
      const Rank rank = program.threads[t].rank;
      route.duration = send ? options_.time.message(rank, linked.peer, endpoint.bytes)
                            : options_.time.message(linked.peer, rank, endpoint.bytes);
      const Key key = send ? Key{linked.communicator, linked.position, linked.peer_position}
                           : Key{linked.communicator, linked.peer_position, linked.position};
      keys.emplace_back(key, window.base + i);
    }
  }
  std::sort(keys.begin(), keys.end());
  channel_limits_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i == 0 || keys[i].first != keys[i - 1].first) {
      const auto& [communicator, sender, receiver] = keys[i].first;
      const std::vector<Rank>& members =
          linked_->communicators[static_cast<std::size_t>(communicator)].members;
      channel_limits_.push_back(options_.model.limit(members.size(),
                                                     members[static_cast<std::size_t>(sender)],
                                                     members[static_cast<std::size_t>(receiver)]));
    }
    routes_[keys[i].second].channel = static_cast<std::int32_t>(channel_limits_.size() - 1);
  }
}

Status World::begin_step(const LinkedProgram& linked) {
  if (linked_ != &linked) bind(linked);
  const Program& program = *linked.program;
  log_.begin(program);
  graph_.clear();
  entries_.assign(1, Entry{});
  uses_.clear();
  std::fill(member_tail_.begin(), member_tail_.end(), 0);
  events_.clear();
  if (cores_) cores_->clear();
  woken_.clear();
  other_hosts_.clear();
  buffered_.clear();
  error_.reset();
  for (Route& route : routes_) route.connected = false;
  live_channels_.clear();
  channels_.begin_step(channel_limits_);
  collectives_.begin_step(linked);
  lifecycle_.begin_step(linked);
  connections_.begin_step(linked, connection_map_);
  collective_connections_.begin_step(linked, collective_map_);
  resumed_.clear();
  ended_.assign(devices_.size(), false);
  faulted_.assign(devices_.size(), false);
  any_ended_ = false;
  watches_.clear();
  for (Slots& slots : slots_) slots.begin_step();
  for (std::uint32_t t = 0; t < threads_.size(); ++t) {
    threads_[t] = ThreadState{};
    threads_[t].values.assign(program.variables.size(), 0.0);
  }
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
    std::set<unsigned> loaded = std::move(devices_[rank].loaded);
    devices_[rank] = Device{};
    devices_[rank].loaded = std::move(loaded);
    devices_[rank].streams.resize(program.streams.size());
    devices_[rank].queues.resize(static_cast<std::size_t>(options_.model.hw_queues));
    note_memory(first_thread_[rank]);
  }
  return bind_persistent();
}

Status World::bind_persistent() {
  for (std::uint32_t t = 0; t < workers_.size(); ++t) {
    for (const std::uint16_t slot_class : slots_[t].classes()) {
      const SlotClass& row = program().slots[slot_class];
      if (!row.persistent) continue;
      PersistentSlot& slot = persistent_[t].at(row.name);
      if (std::exchange(slot.bound, true)) continue;
      PL_TRY(workers_[t]->bind(row, {slot.memory.get(), row.bytes, row.dtype}));
    }
  }
  return {};
}

std::uint32_t World::route_of(std::uint32_t thread, Item item) const {
  const LinkedProgram::Window& window = linked_->windows[thread];
  return window.base + (item_ref(item) - window.first);
}

void World::note_memory(std::uint32_t thread) {
  if (!options_.record_memory) return;
  Device& device = device_of(thread);
  const Bytes live = slots_of(thread).live_bytes();
  if (live == device.noted) return;
  device.noted = live;
  threads_[thread].memory.push_back({step_, program().threads[thread].rank, now_, live});
}

// A node that completes when `node` starts.
NodeId World::start_point(NodeId node) {
  if (graph_[node].start_point == 0) {
    const NodeId point = graph_.add(NodeKind::kStarted, graph_[node].thread, graph_[node].item);
    graph_[point].first = node;
    graph_[node].start_point = point;
  }
  return graph_[node].start_point;
}

// Appends a node to a stream: behind what is there, and behind what the stream was told to wait for. In a
// hardware queue it cannot start before what is ahead of it, whatever stream that is on.
void World::enqueue(NodeId node, int stream) {
  Stream& queue = streams_of(graph_[node].thread)[static_cast<std::size_t>(stream)];
  graph_[node].stream = static_cast<std::uint8_t>(stream);
  graph_.depend(node, queue.tail, Because::kStream);
  for (const NodeId wait : queue.waits) graph_.depend(node, wait, Because::kWaitsFor);
  queue.waits.clear();
  queue.tail = node;
  const std::uint32_t thread = graph_[node].thread;
  if (const int legacy = program().extras.legacy_stream; legacy >= 0 && !threads_[thread].graph.open) {
    // The legacy default stream and all others wait for each other (N53).
    Device& device = device_of(thread);
    for (std::size_t s = 0; stream == legacy && s < device.streams.size(); ++s) {
      for (const NodeId wait : device.streams[s].waits) graph_.depend(node, wait, Because::kLegacy);
      graph_.depend(node, device.streams[s].tail, Because::kLegacy);
    }
    graph_.depend(node, device.legacy, Because::kLegacy);
    if (stream == legacy) device.legacy = node;
  }
  std::vector<NodeId>& queues = device_of(thread).queues;
  if (queues.empty()) return;
  NodeId& last = queues[static_cast<std::size_t>(stream) % queues.size()];
  graph_.depend(node, last, Because::kQueue);
  last = start_point(node);
}

// The stream's last node, after one is made that collects pending waits.
NodeId World::tail(std::uint32_t thread, int stream, std::uint32_t item) {
  Stream& queue = streams_of(thread)[static_cast<std::size_t>(stream)];
  if (!queue.waits.empty()) {
    const NodeId point = graph_.add(NodeKind::kPoint, thread, item);
    enqueue(point, stream);
    graph_.seal(point);
  }
  return queue.tail;
}

Result<Issued> World::launch(std::uint32_t thread, std::uint32_t item_index, Item item) {
  const Kernel& kernel = program().kernels[item_ref(item)];
  const int microbatch = item_microbatch(item);
  Slots& slots = slots_of(thread);
  const auto in = [](const RowList& list, std::uint16_t slot) {
    return std::find(list.begin(), list.end(), slot) != list.end();
  };
  const NodeId node = graph_.add(NodeKind::kKernel, thread, item_index);
  graph_[node].first = static_cast<std::uint32_t>(uses_.size());
  for (const std::uint16_t slot : kernel.reads) {
    const bool in_place = !kernel.writes.empty() && in(kernel.writes, slot);
    uses_.push_back(in_place ? slots.update(slot, microbatch, item_index)
                             : slots.read(slot, microbatch, item_index));
  }
  for (const std::uint16_t slot : kernel.frees) uses_.push_back(slots.read(slot, microbatch, item_index));
  for (const std::uint16_t slot : kernel.writes) {
    if (!in(kernel.reads, slot)) uses_.push_back(slots.write(slot, microbatch, item_index));
  }
  graph_[node].count = static_cast<std::uint32_t>(uses_.size()) - graph_[node].first;
  note_memory(thread);
  for (const std::uint16_t slot : kernel.frees) slots.release(slot, microbatch, item_index);
  note_memory(thread);
  NodeId loads = 0;
  if (options_.model.lazy_modules && device_of(thread).loaded.insert(item_ref(item)).second) {
    loads = static_cast<NodeId>(*marker(thread, -1));
    graph_[loads].item = item_index;
    graph_.depend(node, loads, Because::kModule);
  }
  enqueue(node, item_stream(item));
  graph_.seal(node);
  return Issued{loads, node};
}

// What the simulator does not do is said before anything is changed.
Status World::check_group(const GroupCall& call) const {
  for (const Item item : call.entries) {
    const Endpoint& endpoint = program().endpoints[item_ref(item)];
    if (endpoint.kind != EndpointKind::kAllGather && endpoint.kind != EndpointKind::kReduceScatter) continue;
    const LinkedEndpoint& linked = linked_->endpoints[route_of(call.thread, item)];
    const auto members = static_cast<Bytes>(
        linked_->communicators[static_cast<std::size_t>(linked.communicator)].members.size());
    if ((workers_.empty() && live_ == nullptr) ||
        endpoint.bytes % (members * dtype_bytes(endpoint.dtype)) == 0)
      continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has {} bytes of {}, which {} members cannot share evenly", endpoint.name,
                            endpoint.bytes, dtype_name(endpoint.dtype), members));
  }
  return {};
}

// Makes the group's entries, in the order of execution: by communicator (N16), collectives before p2p (N15),
// otherwise as called; collectives of no bytes are dropped (N60). Receives allocate; what the group releases
// goes after that.
std::uint32_t World::add_entries(const GroupCall& call) {
  Slots& slots = slots_of(call.thread);
  const auto first = entries_.size();
  bool ordered = true;
  bool releases = false;
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const Item item = call.entries[i];
    const Endpoint& endpoint = program().endpoints[item_ref(item)];
    if (!is_p2p(endpoint.kind) && endpoint.bytes == 0) continue;
    const std::uint32_t index = call.first_item + static_cast<std::uint32_t>(i);
    const int microbatch = item_microbatch(item);
    Entry entry;
    entry.thread = call.thread;
    entry.item = index;
    entry.route = route_of(call.thread, item);
    entry.bytes = endpoint.bytes;
    entry.registered = threads_[call.thread].graph.open;
    entry.duration = routes_[entry.route].duration;
    if (live_ != nullptr) {
      // Memory is the caller's.
    } else if (endpoint.kind == EndpointKind::kSend) {
      entry.use = slots.read(endpoint.slot, microbatch, index);
    } else if (endpoint.kind == EndpointKind::kRecv ||
               (endpoint.kind == EndpointKind::kBroadcast && !slots.live(endpoint.slot, microbatch))) {
      entry.use = slots.write(endpoint.slot, microbatch, index);
    } else {
      entry.use = slots.update(endpoint.slot, microbatch, index);
    }
    releases = releases || (endpoint.free_after && live_ == nullptr);
    ordered =
        ordered && is_p2p(endpoint.kind) &&
        linked_->endpoints[entry.route].communicator ==
            linked_->endpoints[entries_.size() == first ? entry.route : entries_[first].route].communicator;
    entries_.push_back(entry);
  }
  note_memory(call.thread);
  for (std::size_t i = 0; releases && i < call.entries.size(); ++i) {
    const Endpoint& endpoint = program().endpoints[item_ref(call.entries[i])];
    if (!endpoint.free_after) continue;
    slots.release(endpoint.slot, item_microbatch(call.entries[i]),
                  call.first_item + static_cast<std::uint32_t>(i));
  }
  if (releases) note_memory(call.thread);
  if (!ordered) {
    // Communicators in the same order on all ranks, or in that of their first calls.
    std::map<std::int32_t, std::int32_t> place;
    for (std::size_t i = first; i < entries_.size() && options_.model.group_order_by_call; ++i)
      place.try_emplace(linked_->endpoints[entries_[i].route].communicator,
                        static_cast<std::int32_t>(place.size()));
    const auto order = [&](const Entry& entry) {
      const std::int32_t communicator = linked_->endpoints[entry.route].communicator;
      return std::pair(place.empty() ? communicator : place.at(communicator),
                       is_p2p(endpoint_of(entry).kind));
    };
    std::stable_sort(entries_.begin() + static_cast<std::ptrdiff_t>(first), entries_.end(),
                     [&](const Entry& a, const Entry& b) { return order(a) < order(b); });
  }
  return static_cast<std::uint32_t>(entries_.size() - first);
}

Result<Issued> World::group(const GroupCall& call) {
  PL_TRY(check_group(call));
  if (refused(call)) return Issued{};
  if (refused_self(call)) return Issued{};
  const auto first = static_cast<EntryId>(entries_.size());
  const std::uint32_t count = add_entries(call);
  if (count == 0) return Issued{};
  if (options_.model.connect == Connect::kCold || options_.model.collectives_connect) {
    if (const std::optional<Issued> held = begin_connections(call, first, count)) return *held;
  }
  const NodeId done =
      enqueue_group(call.thread, call.first_item, first, count, call.stream, call.after_compute);
  // What a graph captures is not launched by the call.
  const bool blocks = options_.model.launch_blocking && !threads_[call.thread].graph.open;
  return Issued{blocks ? done : 0, done};
}

// Where the pieces end in which entries of one communicator and kind are executed. Puts the entries into the
// order of the pieces.
std::vector<EntryId> World::piece_ends(EntryId begin, EntryId end, bool p2p) {
  if (!p2p || options_.model.progress == GroupProgress{}) return {end};
  std::vector<PlannedOp> ops;
  for (EntryId id = begin; id < end; ++id) {
    ops.push_back({linked_->endpoints[entries_[id].route].peer_position,
                   endpoint_of(entries_[id]).kind == EndpointKind::kSend});
  }
  const LinkedEndpoint& linked = linked_->endpoints[entries_[begin].route];
  const auto members = static_cast<std::int32_t>(
      linked_->communicators[static_cast<std::size_t>(linked.communicator)].members.size());
  const std::vector<Entry> given(entries_.begin() + begin, entries_.begin() + end);
  std::vector<EntryId> ends;
  EntryId next = begin;
  for (const PlanPiece& piece : plan_pieces(ops, linked.position, members, options_.model.progress)) {
    for (const std::uint32_t op : piece.ops) entries_[next++] = given[op];
    ends.push_back(next);
  }
  return ends;
}

// One node for each run of entries of one communicator and kind, or piece of it, in a row on the stream. Returns
// the last.
NodeId World::enqueue_group(std::uint32_t thread, std::uint32_t item, EntryId first, std::uint32_t count,
                            int stream, bool after_compute) {
  NodeId node = 0;
  // A group on several streams waits for all of them, and they for it (N5).
  const std::vector<int> others = other_streams(first, count, stream);
  for (EntryId begin = first; begin < first + count;) {
    const LinkedEndpoint& linked = linked_->endpoints[entries_[begin].route];
    const bool p2p = is_p2p(endpoint_of(entries_[begin]).kind);
    EntryId end = begin;
    while (end < first + count &&
           linked_->endpoints[entries_[end].route].communicator == linked.communicator &&
           is_p2p(endpoint_of(entries_[end]).kind) == p2p) {
      ++end;
    }
    const NodeId compute =
        after_compute && begin == first && stream != kComputeStream ? tail(thread, kComputeStream, item) : 0;
    NodeId piece = 0;
    for (const EntryId piece_end : piece_ends(begin, end, p2p)) {
      node = graph_.add(NodeKind::kGroup, thread, item);
      graph_[node].first = begin;
      graph_[node].count = graph_[node].open = piece_end - begin;
      for (EntryId entry = begin; entry < piece_end; ++entry) entries_[entry].node = node;
      graph_.depend(node, compute, Because::kCompute);
      graph_.depend(node, piece, Because::kPlan);
      for (const int other : begin == first ? others : std::vector<int>{})
        graph_.depend(node, tail(thread, other, item), Because::kGroupStreams);
      NodeId& previous = member_tail_[queue_of_[routes_[entries_[begin].route].member]];
      Device& device = device_of(thread);
      graph_.depend(node, previous, Because::kCommunicator);
      // Of one rank alone a collective is a copy, not a kernel of NCCL (N61).
      const bool copy =
          !p2p && linked_->communicators[static_cast<std::size_t>(linked.communicator)].members.size() == 1;
      if (options_.model.cross == CrossComm::kStrict && !copy)
        graph_.depend(node, device.last_group, Because::kLaunchOrder);
      if (options_.model.cross == CrossComm::kLaunchOrder && !copy) {
        graph_.depend(node, device.last_start, Because::kLaunchOrder);
        device.last_start = start_point(node);
      }
      enqueue(node, stream);
      piece = previous = node;
      if (!copy) device.last_group = node;
      graph_.seal(node);
      begin = piece_end;
    }
  }
  for (const int other : others) streams_of(thread)[static_cast<std::size_t>(other)].tail = node;
  return node;
}

std::vector<int> World::other_streams(EntryId first, std::uint32_t count, int stream) const {
  std::vector<int> others;
  for (EntryId id = first; program().extras.mixed_streams && id < first + count; ++id) {
    const int own = item_stream(program().items[entries_[id].item]);
    if (own != stream && std::find(others.begin(), others.end(), own) == others.end()) others.push_back(own);
  }
  return others;
}

Status World::stream_wait(std::uint32_t thread, int stream, Token token) {
  const NodeId node = seen(static_cast<NodeId>(token));
  if (graph_[node].done) return {};
  // A capture cannot refer to what is outside: the graph as a whole waits for that.
  if (const Graph& graph = threads_[thread].graph;
      graph.open && (graph_[node].thread != thread || node < graph.start)) {
    graph_.depend(graph.start, node, Because::kWaitsFor);
    return {};
  }
  streams_of(thread)[static_cast<std::size_t>(stream)].waits.push_back(node);
  // In a hardware queue the wait itself holds back what is behind it.
  if (options_.model.hw_queues > 0) tail(thread, stream, kNoItem);
  return {};
}

Result<Token> World::marker(std::uint32_t thread, int stream) {
  const std::uint32_t item = kNoItem;
  if (stream >= 0) return Token{tail(thread, stream, item)};
  const NodeId all = graph_.add(NodeKind::kPoint, thread, item);
  if (threads_[thread].graph.open) {
    // What is in the graph is not on the device yet.
    for (const Stream& queue : device_of(thread).streams)
      if (queue.tail != threads_[thread].graph.start) graph_.depend(all, queue.tail, Because::kWaitsFor);
  } else {
    for (std::size_t s = 0; s < streams_of(thread).size(); ++s)
      graph_.depend(all, tail(thread, static_cast<int>(s), item), Because::kWaitsFor);
  }
  graph_.seal(all);
  return Token{all};
}

Status World::free(std::uint32_t thread, std::uint32_t item_index, SlotRef slot) {
  slots_of(thread).release(slot.slot_class, slot.microbatch, item_index);
  note_memory(thread);
  return {};
}

Result<Token> World::read(std::uint32_t thread, std::uint32_t item_index, unsigned variable) {
  const NodeId node = graph_.add(NodeKind::kRead, thread, item_index);
  graph_[node].first = static_cast<std::uint32_t>(uses_.size());
  graph_[node].count = 1;
  uses_.push_back(slots_of(thread).read(program().variables[variable].slot, kNoMicrobatch, item_index));
  enqueue(node, kComputeStream);
  graph_.seal(node);
  return Token{node};
}

Result<double> World::value(std::uint32_t thread, unsigned variable) {
  return threads_[thread].values[variable];
}

Poll World::poll(std::uint32_t /*thread*/, Token token) {
  // The reasons of a wait that never ends are worked out by sim/deadlock.cc, once.
  if (graph_[seen(static_cast<NodeId>(token))].done) return {};
  return {PollState::kPending, {}};
}

}  // namespace plumbline::sim
