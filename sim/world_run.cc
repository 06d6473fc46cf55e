// What starts and completes on the simulated devices. Everything here happens at now_; ends are put on the
// heap.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/runtime/reduce.h"
#include "sim/world.h"

namespace plumbline::sim {

void World::schedule(NodeId node, Nanoseconds time) {
  graph_[node].end = time;
  events_.push_back({time, graph_[node].thread, node});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

bool World::settle() {
  finish_connections();
  if (any_ended_) break_off();
  for (NodeId node = graph_.next_startable(); node != 0; node = graph_.next_startable()) {
    start(node);
    if (error_) return false;
  }
  return true;
}

bool World::fire() {
  if (fire_core()) return true;
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end(), std::greater<>());
  const Event event = events_.back();
  events_.pop_back();
  PL_ASSERT(event.time >= now_);
  now_ = event.time;
  complete(event.node);
  return true;
}

// A kernel on shared cores, if it is over before everything else.
bool World::fire_core() {
  const std::optional<Cores::Completion> first = cores_ ? cores_->next() : std::nullopt;
  if (!first) return false;
  if (!events_.empty() && Event{first->time, first->thread, first->node} > events_.front()) return false;
  PL_ASSERT(first->time >= now_);
  now_ = first->time;
  cores_->complete(*first);
  graph_[first->node].end = now_;
  complete(first->node);
  return true;
}

void World::wake_on(std::uint32_t thread, Token token) {
  const NodeId id = seen(static_cast<NodeId>(token));
  Node& node = graph_[id];
  PL_ASSERT(!node.done);
  if (node.thread == thread) {
    node.wakes_host = true;
  } else {
    other_hosts_[id].push_back(thread);
  }
}

std::vector<std::uint32_t> World::take_woken() {
  std::sort(woken_.begin(), woken_.end());
  return std::exchange(woken_, {});
}

void World::start(NodeId id) {
  Node& node = graph_[id];
  if (node.kind == NodeKind::kGroup && options_.model.sms > 0 && !admit(id)) return;
  node.started = true;
  node.start = now_;
  if (node.start_point != 0) graph_.seal(node.start_point);
  switch (node.kind) {
    case NodeKind::kKernel:
      return start_kernel(id);
    case NodeKind::kGroup:
      return start_group(id);
    case NodeKind::kRead:
      return start_read(id);
    case NodeKind::kComm:
      return start_comm(id);
    case NodeKind::kFault:
      return start_fault(id);
    case NodeKind::kPoint:
    case NodeKind::kConnect:
    case NodeKind::kStarted:
      return complete(id);
  }
}

// A kernel starts when all its blocks find a processor, and none overtakes another that waits for them (N45).
// Kernels larger than the device are as large as it.
bool World::admit(NodeId id) {
  Node& node = graph_[id];
  Device& device = device_of(node.thread);
  if (node.aborted) return true;
  if (node.processors == 0) {
    Bytes largest = 0;
    for (EntryId entry = node.first; entry < node.first + node.count; ++entry)
      largest = std::max(largest, entries_[entry].bytes);
    node.processors = std::min(options_.model.sms, options_.model.channels_of(largest));
  }
  if (options_.chooser != nullptr && !node.in_line) {
    device.requests.push_back(id);
    node.parked = true;
    return false;
  }
  const bool next = device.parked.empty() || device.parked.front() == id;
  if (!next || device.processors + node.processors > options_.model.sms) {
    if (!node.parked) device.parked.push_back(id);
    node.parked = true;
    return false;
  }
  if (node.parked) device.parked.pop_front();
  node.parked = false;
  device.processors += node.processors;
  return true;
}

bool World::choose_request(Chooser& chooser) {
  for (Device& device : devices_) {
    std::vector<NodeId>& requests = device.requests;
    if (requests.empty()) continue;
    const std::size_t chosen = requests.size() > 1 ? chooser.choose(requests.size()) : 0;
    const NodeId id = requests[chosen];
    requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(chosen));
    graph_[id].in_line = true;
    graph_[id].parked = false;
    start(id);
    return true;
  }
  return false;
}

void World::release_processors(NodeId id) {
  Device& device = device_of(graph_[id].thread);
  device.processors -= graph_[id].processors;
  while (!device.parked.empty()) {
    const NodeId next = device.parked.front();
    start(next);
    if (graph_[next].parked) return;
  }
}

// The worker sees the instances its kernel was issued with, by class; the microbatch follows from the kernel.
SlotMemory World::slot(SlotRef ref) {
  const Node& node = graph_[running_];
  for (std::uint32_t i = node.first; i < node.first + node.count; ++i) {
    if (uses_[i].slot_class != ref.slot_class) continue;
    const int microbatch = slots_of(node.thread).microbatch(uses_[i]);
    if (microbatch == ref.microbatch || microbatch == kNoMicrobatch)
      return slots_of(node.thread).memory(uses_[i]);
  }
  return {};
}

void World::start_kernel(NodeId id) {
  const Node& node = graph_[id];
  const Item item = program().items[node.item];
  const Rank rank = program().threads[node.thread].rank;
  if (live_ != nullptr) {
    if (const auto time = live_->start(id, node.item); time) schedule(id, now_ + *time);
    return;
  }
  for (std::uint32_t i = node.first; i < node.first + node.count; ++i)
    slots_of(node.thread).start(uses_[i], node.item);
  if (!workers_.empty()) {
    running_ = id;
    const Status status =
        workers_[node.thread]->launch({&program(), rank, item_ref(item), item_microbatch(item)}, *this);
    running_ = 0;
    if (!status) {
      error_ = status.error();
      return;
    }
  }
  const Nanoseconds work = options_.time.kernel(rank, program().kernels[item_ref(item)]);
  if (!cores_ || work == 0) return schedule(id, now_ + work);
  cores_->start(options_.time.machine(rank), node.thread, id, work, now_);
}

void World::start_read(NodeId id) {
  const Node& node = graph_[id];
  const Use& use = uses_[node.first];
  slots_of(node.thread).start(use, node.item);
  const unsigned variable = item_ref(program().items[node.item]);
  double& value = threads_[node.thread].values[variable];
  const SlotMemory memory = slots_of(node.thread).memory(use);
  value = memory.data == nullptr ? options_.read_value : first_element(memory.dtype, memory.data);
  complete(id);
}

void World::start_group(NodeId id) {
  const Node node = graph_[id];
  if (node.aborted) return schedule(id, now_);
  for (EntryId entry = node.first; entry < node.first + node.count; ++entry) {
    if (live_ == nullptr) slots_of(node.thread).start(entries_[entry].use, entries_[entry].item);
    entries_[entry].active = true;
  }
  for (EntryId entry = node.first; entry < node.first + node.count; ++entry) activate(entry);
}

void World::activate(EntryId id) {
  const Entry& entry = entries_[id];
  const EndpointKind kind = endpoint_of(entry).kind;
  if (!is_p2p(kind)) {
    const LinkedEndpoint& linked = linked_->endpoints[entry.route];
    const std::vector<EntryId> members = collectives_.activate(linked.communicator, linked.position, id);
    if (!members.empty()) collective(members);
    if (any_ended_) miss_peers(id);
    return;
  }
  transfers_.clear();
  channels_.activate(static_cast<std::size_t>(routes_[entry.route].channel), id, kind == EndpointKind::kSend,
                     now_, transfers_);
  const std::vector<Transfer> decided = std::exchange(transfers_, {});
  for (const Transfer& transfer : decided) deliver(transfer);
  if (any_ended_) miss_peers(id);
}

// Where the entry's part of its slot lies; null without memory.
std::byte* World::data_of(const Entry& entry) {
  if (live_ != nullptr) return live_->data(entry.item);
  std::byte* data = slots_of(entry.thread).memory(entry.use).data;
  return data == nullptr ? nullptr : data + endpoint_of(entry).offset;
}

// Moves the bytes of a transfer and notes the ends it decides. A buffered send's bytes wait in a copy, since
// its slot may be released before the receive is there.
void World::deliver(const Transfer& transfer) {
  const Entry& send = entries_[transfer.send];
  const std::byte* from = data_of(send);
  if (transfer.receive == 0) {
    if (from != nullptr) {
      note_sent(send, from);
      Memory copy = zeroed_memory(send.bytes);
      std::memcpy(copy.get(), from, static_cast<std::size_t>(send.bytes));
      buffered_[transfer.send] = std::move(copy);
    }
    decided(transfer.send);
    return;
  }
  if (from != nullptr && !send.buffered && transfer.from == 0) note_sent(send, from);
  const Entry& receive = entries_[transfer.receive];
  compare(send, receive);
  if (std::byte* to = data_of(receive); to != nullptr) {
    const auto buffered = buffered_.find(transfer.send);
    const std::byte* data = send.buffered ? buffered->second.get() : from;
    std::memcpy(to + transfer.to, data + transfer.from, static_cast<std::size_t>(transfer.bytes));
    if (send.buffered && transfer.last_of_send) buffered_.erase(buffered);
    if (transfer.receive_ends) note_received(receive, to);
  }
  if (transfer.send_ends) decided(transfer.send);
  if (transfer.receive_ends) decided(transfer.receive);
}

PayloadLedger::Label World::label_of(const Entry& entry) const {
  const Rank rank = program().threads[entry.thread].rank;
  return {program().grid.coordinate(rank, Axis::kDp), entry.use.slot_class,
          item_microbatch(program().items[entry.item])};
}

void World::note_sent(const Entry& send, const std::byte* data) {
  if (live_ != nullptr) return;  // labels are the Program's
  payloads_.sent(label_of(send), hash64(data, static_cast<std::size_t>(send.bytes)));
}

void World::note_received(const Entry& receive, const std::byte* data) {
  if (live_ != nullptr) return;
  payloads_.received(label_of(receive), hash64(data, static_cast<std::size_t>(receive.bytes)), receive.thread,
                     receive.item);
}

// A matched pair must agree in size (N23, N24) and, of the same size, in what it carries.
void World::compare(const Entry& send, const Entry& receive) {
  const std::uint16_t sent = send.use.slot_class;
  const std::uint16_t wanted = receive.use.slot_class;
  const int sent_of = item_microbatch(program().items[send.item]);
  const int wanted_of = item_microbatch(program().items[receive.item]);
  const bool size_differs = send.bytes != receive.bytes;
  if (!size_differs && (live_ != nullptr || (sent == wanted && sent_of == wanted_of))) return;
  const FindingKind kind = size_differs ? FindingKind::kSizeMismatch : FindingKind::kLabelMismatch;
  if (!log_.wants(kind)) return;
  const OperationRef to = log_.operation(receive.thread, receive.item);
  const OperationRef from = log_.operation(send.thread, send.item);
  const std::string what =
      size_differs ? fmt::format("{} bytes", receive.bytes) : slot_text(program(), wanted, wanted_of);
  const std::string got =
      size_differs ? fmt::format("{} bytes", send.bytes) : slot_text(program(), sent, sent_of);
  log_.add(kind, {to, from},
           fmt::format("{} on rank {} expects {}, but is matched with {} on rank {}, which carries {}",
                       to.text, to.rank, what, from.text, from.rank, got));
}

void World::collective(const std::vector<EntryId>& members) {
  const Entry& first = entries_[members.front()];
  const Endpoint& endpoint = endpoint_of(first);
  const LinkedEndpoint& linked = linked_->endpoints[first.route];
  const Communicator& communicator = linked_->communicators[static_cast<std::size_t>(linked.communicator)];
  Bytes bytes = first.bytes;
  bool agreed = true;
  std::vector<std::byte*> slots;
  for (const EntryId member : members) {
    const Entry& entry = entries_[member];
    bytes = std::min(bytes, entry.bytes);
    slots.push_back(data_of(entry));
    const std::string difference = collective_difference(endpoint, linked.peer, endpoint_of(entry),
                                                         linked_->endpoints[entry.route].peer);
    if (difference.empty() || !agreed) continue;
    agreed = false;
    if (!log_.wants(FindingKind::kCollectiveMismatch)) continue;
    const OperationRef a = log_.operation(first.thread, first.item);
    const OperationRef b = log_.operation(entry.thread, entry.item);
    log_.add(
        FindingKind::kCollectiveMismatch, {b, a},
        fmt::format("{} on rank {} and {} on rank {} are the same call of communicator {}, but differ: {}",
                    a.text, a.rank, b.text, b.rank, communicator.name, difference));
  }
  if (!agreed && options_.model.emulate_mismatch && hangs(members)) {
    for (const EntryId member : members) entries_[member].broken = true;
    return;
  }
  if (agreed && (!workers_.empty() || live_ != nullptr))
    run_collective(endpoint, linked.peer_position, bytes, slots, options_.numerics);
  const Nanoseconds end = now_ + options_.time.collective(endpoint.kind, communicator.members, bytes);
  for (const EntryId member : members) {
    entries_[member].ready = now_;
    entries_[member].end = end;
    decided(member);
  }
}

// Members that do not call the same kind, size and root wait for ever; other differences end in garbage (N58).
bool World::hangs(const std::vector<EntryId>& members) const {
  const Entry& first = entries_[members.front()];
  const Endpoint& a = endpoint_of(first);
  return std::any_of(members.begin(), members.end(), [&](EntryId member) {
    const Endpoint& b = endpoint_of(entries_[member]);
    return a.kind != b.kind || a.bytes != b.bytes ||
           linked_->endpoints[first.route].peer != linked_->endpoints[entries_[member].route].peer;
  });
}

// The entry's end is known. The group ends with its last one (N11).
void World::decided(EntryId id) {
  const NodeId node = entries_[id].node;
  if (graph_[node].aborted) return;
  graph_[node].end = std::max(graph_[node].end, entries_[id].end);
  if (--graph_[node].open == 0) schedule(node, graph_[node].end);
}

void World::complete(NodeId id) {
  const Node node = graph_[id];
  switch (node.kind) {
    case NodeKind::kKernel:
      if (options_.record_events && live_ == nullptr) record_kernel(node);
      [[fallthrough]];
    case NodeKind::kRead:
      for (std::uint32_t i = node.first; i < node.first + node.count; ++i)
        slots_of(node.thread).finish(uses_[i]);
      break;
    case NodeKind::kGroup:
      if (options_.record_events && !node.aborted && live_ == nullptr) record_group(node);
      for (EntryId e = node.first; e < node.first + node.count; ++e) {
        if (live_ != nullptr) {
          live_->over(entries_[e].item);
        } else {
          slots_of(node.thread).finish(entries_[e].use);
        }
      }
      break;
    case NodeKind::kPoint:
      graph_[id].end = now_;
      break;
    case NodeKind::kConnect:
    case NodeKind::kComm:
    case NodeKind::kStarted:
    case NodeKind::kFault:
      break;
  }
  wake_hosts(id);
  graph_.complete(id);
  if (node.processors > 0) release_processors(id);
}

void World::wake_hosts(NodeId id) {
  if (graph_[id].wakes_host) woken_.push_back(graph_[id].thread);
  if (other_hosts_.empty()) return;
  const auto found = other_hosts_.find(id);
  if (found == other_hosts_.end()) return;
  woken_.insert(woken_.end(), found->second.begin(), found->second.end());
  other_hosts_.erase(found);
}

void World::record_kernel(const Node& node) {
  const Item item = program().items[node.item];
  RunEvent event;
  event.step = step_;
  event.rank = program().threads[node.thread].rank;
  event.label = item_ref(item);
  event.stream = node.stream;
  event.microbatch = item_microbatch(item) == kNoMicrobatch ? -1 : item_microbatch(item);
  event.start = event.ready = node.start;
  event.end = node.end;
  threads_[node.thread].events.push_back({event, node.item});
}

void World::record_group(const Node& node) {
  for (EntryId id = node.first; id < node.first + node.count; ++id) {
    const Entry& entry = entries_[id];
    const Item item = program().items[entry.item];
    RunEvent event;
    event.step = step_;
    event.rank = program().threads[node.thread].rank;
    event.label = static_cast<std::uint32_t>(program().kernels.size()) + item_ref(item);
    event.stream = node.stream;
    event.microbatch = item_microbatch(item) == kNoMicrobatch ? -1 : item_microbatch(item);
    event.peer = is_p2p(program().endpoints[item_ref(item)].kind) ? linked_->endpoints[entry.route].peer : -1;
    event.start = node.start;
    event.ready = entry.ready;
    event.end = entry.end;
    threads_[node.thread].events.push_back({event, entry.item});
  }
}

void World::end_step(bool completed, RunRecord& record) {
  payloads_.report(program(), log_);
  payloads_.clear();
  if (completed) {
    for (Slots& slots : slots_) slots.report_leaks();
    for (const EntryId send : channels_.never_received()) {
      if (!log_.wants(FindingKind::kUnmatched)) continue;
      const OperationRef from = log_.operation(entries_[send].thread, entries_[send].item);
      log_.add(
          FindingKind::kUnmatched, {from},
          fmt::format("{} on rank {} completed early, but no receive ever takes it", from.text, from.rank));
    }
  }
  // Events carry rows of this Program's tables until here; the record may know several Programs.
  const std::uint32_t base = label_base(record, program());
  for (ThreadState& thread : threads_) {
    std::stable_sort(thread.events.begin(), thread.events.end(), [](const EventRow& a, const EventRow& b) {
      return a.event.start != b.event.start ? a.event.start < b.event.start : a.item < b.item;
    });
    for (EventRow& row : thread.events) {
      row.event.label += base;
      record.events.push_back(row.event);
    }
    record.memory.insert(record.memory.end(), thread.memory.begin(), thread.memory.end());
    thread.events.clear();
    thread.memory.clear();
  }
}

}  // namespace plumbline::sim
