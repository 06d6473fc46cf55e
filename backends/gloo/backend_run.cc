// What starts and completes: kernels on the driver's thread, groups on the lanes.
#include <algorithm>
#include <ctime>
#include <utility>

#include "backends/gloo/backend.h"
#include "engine/base/assert.h"
#include "engine/runtime/reduce.h"

namespace plumbline::gloo {

using sim::Node;
using sim::NodeId;
using sim::NodeKind;

namespace {

// What this thread has computed so far; a core that others take in between does not count.
Nanoseconds thread_cpu() {
  timespec time{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
  return Nanoseconds{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

// Starts all that may start. Kernels only line up; the driver runs them. Lanes sleep on until wake_lanes().
void GlooBackend::settle() {
  for (NodeId id = graph_.next_startable(); id != 0; id = graph_.next_startable()) {
    Node& node = graph_[id];
    node.started = true;
    node.start = now();
    switch (node.kind) {
      case NodeKind::kKernel:
        kernels_.push_back(id);
        break;
      case NodeKind::kGroup: {
        for (std::uint32_t i = node.first; i < node.first + node.count; ++i) {
          operations_[i].start = node.start;
          slots_->start(operations_[i].use, operations_[i].item);
        }
        Lane& lane = *lanes_[static_cast<std::size_t>(operations_[node.first].communicator)];
        lane.work.push_back(id);
        if (!std::exchange(lane.woken, true)) to_wake_.push_back(&lane);
        break;
      }
      case NodeKind::kRead:
        start_read(id);
        finish(id);
        break;
      case NodeKind::kPoint:
      case NodeKind::kConnect:
      case NodeKind::kComm:
      case NodeKind::kStarted:
      case NodeKind::kFault:
        finish(id);
        break;
    }
  }
}

// Releases the lock.
void GlooBackend::wake_lanes(std::unique_lock<std::mutex>& lock) {
  PL_ASSERT(lock.owns_lock());
  if (to_wake_.empty()) return lock.unlock();
  const std::vector<Lane*> lanes = std::exchange(to_wake_, {});
  for (Lane* lane : lanes) lane->woken = false;
  lock.unlock();
  for (Lane* lane : lanes) lane->wake.notify_one();
}

bool GlooBackend::host_may_go_on(NodeId awaited) const {
  if (error_ || !kernels_.empty()) return true;
  return awaited != 0 ? graph_[awaited].done : graph_.incomplete() == 0;
}

void GlooBackend::start_read(NodeId id) {
  const sim::Use& use = uses_[graph_[id].first];
  slots_->start(use, graph_[id].item);
  const SlotMemory memory = slots_->memory(use);
  values_[item_ref(program().items[graph_[id].item])] = first_element(memory.dtype, memory.data);
}

void GlooBackend::finish(NodeId id) {
  Node& node = graph_[id];
  node.end = now();
  if (node.kind == NodeKind::kKernel || node.kind == NodeKind::kRead) {
    if (node.kind == NodeKind::kKernel && options_.record_events) record_kernel(node);
    for (std::uint32_t i = node.first; i < node.first + node.count; ++i) slots_->finish(uses_[i]);
  } else if (node.kind == NodeKind::kGroup) {
    if (options_.record_events) record_group(node);
    for (std::uint32_t i = node.first; i < node.first + node.count; ++i) slots_->finish(operations_[i].use);
  }
  graph_.complete(id);
  progress_.fetch_add(1, std::memory_order_relaxed);
}

// The worker sees the instances its kernel was issued with, by class; the microbatch follows from the kernel.
SlotMemory GlooBackend::slot(SlotRef ref) {
  const std::lock_guard lock(mutex_);
  const Node& node = graph_[running_];
  for (std::uint32_t i = node.first; i < node.first + node.count; ++i) {
    if (uses_[i].slot_class != ref.slot_class) continue;
    const int microbatch = slots_->microbatch(uses_[i]);
    if (microbatch == ref.microbatch || microbatch == kNoMicrobatch) return slots_->memory(uses_[i]);
  }
  return {};
}

Result<bool> GlooBackend::run_kernel() {
  std::unique_lock lock(mutex_);
  if (error_) return tl::unexpected(*error_);
  if (kernels_.empty()) return false;
  const NodeId id = kernels_.front();
  kernels_.pop_front();
  const Node node = graph_[id];
  graph_[id].start = now();
  for (std::uint32_t i = node.first; i < node.first + node.count; ++i) slots_->start(uses_[i], node.item);
  running_ = id;
  running_item_.store(node.item, std::memory_order_relaxed);
  const Item item = program().items[node.item];
  const KernelCall call{&program(), transport_.rank(), item_ref(item), item_microbatch(item)};
  wake_lanes(lock);
  const Nanoseconds before = thread_cpu();
  const Status status = worker_.launch(call, *this);
  const Nanoseconds computed = thread_cpu() - before;
  lock.lock();
  kernel_cpu_ = computed;
  running_ = 0;
  running_item_.store(sim::kNoItem, std::memory_order_relaxed);
  if (!status) {
    error_ = status.error();
    return tl::unexpected(status.error());
  }
  finish(id);
  settle();
  return true;
}

Status GlooBackend::wait(Token token) {
  const auto awaited = static_cast<NodeId>(token);
  std::unique_lock lock(mutex_);
  if (!host_may_go_on(awaited)) {
    if (!to_wake_.empty()) {
      wake_lanes(lock);
      lock.lock();
    }
    awaited_ = awaited;
    host_sleeps_ = true;
    host_wake_.wait(lock, [&] { return host_may_go_on(awaited); });
    host_sleeps_ = false;
  }
  if (error_) return tl::unexpected(*error_);
  return {};
}

bool GlooBackend::idle() const {
  const std::lock_guard lock(mutex_);
  return graph_.incomplete() == 0;
}

void GlooBackend::run_lane(Lane& lane) {
  std::unique_lock lock(mutex_);
  std::vector<Nanoseconds> ends;
  while (true) {
    lane.wake.wait(lock, [&] { return stopping_ || !lane.work.empty(); });
    if (stopping_) return;
    const NodeId id = lane.work.front();
    lane.work.pop_front();
    lock.unlock();
    const Status status = transfer(lane, id, ends);
    lock.lock();
    if (status) {
      const Node& node = graph_[id];
      for (std::uint32_t i = 0; i < node.count; ++i)
        operations_[node.first + i].end = ends[i] - options_.epoch;
      finish(id);
      settle();
    } else if (!error_) {
      error_ = status.error();
    }
    const bool wakes_host = host_sleeps_ && host_may_go_on(awaited_);
    wake_lanes(lock);
    if (wakes_host) host_wake_.notify_one();
    if (!status) return;
    lock.lock();
  }
}

// A group is of one communicator, and either p2p or collectives, which run one after another.
Status GlooBackend::transfer(Lane& lane, NodeId id, std::vector<Nanoseconds>& ends) {
  std::vector<Operation> operations;
  std::vector<std::byte*> data;
  {
    const std::lock_guard lock(mutex_);
    const Node& node = graph_[id];
    operations.assign(operations_.begin() + node.first, operations_.begin() + node.first + node.count);
    for (const Operation& operation : operations)
      data.push_back(slots_->memory(operation.use).data + endpoint_of(operation).offset);
  }
  ends.assign(operations.size(), 0);
  if (!is_p2p(endpoint_of(operations.front()).kind)) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const Endpoint& endpoint = endpoint_of(operations[i]);
      const CollectiveCall call{endpoint.kind, endpoint.dtype, endpoint.reduce, operations[i].peer_position,
                                data[i],       endpoint.bytes};
      PL_TRY(run_collective(transport_, lane.membership, call));
      ends[i] = now() + options_.epoch;
    }
    return {};
  }
  std::vector<Message> messages;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Endpoint& endpoint = endpoint_of(operations[i]);
    const bool send = endpoint.kind == EndpointKind::kSend;
    const Rank peer = operations[i].peer;
    messages.push_back({send, peer, lane.membership.next_tag(send, peer), data[i], endpoint.bytes, 0});
  }
  PL_TRY(transport_.exchange(messages));
  for (std::size_t i = 0; i < messages.size(); ++i) ends[i] = messages[i].end;
  return {};
}

void GlooBackend::record_kernel(const Node& node) {
  const Item item = program().items[node.item];
  RunEvent event;
  event.step = step_;
  event.rank = transport_.rank();
  event.label = item_ref(item);
  event.stream = node.stream;
  event.microbatch = item_microbatch(item) == kNoMicrobatch ? -1 : item_microbatch(item);
  event.start = event.ready = node.start;
  event.end = node.end;
  event.cpu = kernel_cpu_;
  events_.push_back({event, node.item});
}

// When the other participants started is not known here; merging the ranks' records tells (record_align.h).
void GlooBackend::record_group(const Node& node) {
  for (std::uint32_t i = node.first; i < node.first + node.count; ++i) {
    const Operation& operation = operations_[i];
    const Item item = program().items[operation.item];
    RunEvent event;
    event.step = step_;
    event.rank = transport_.rank();
    event.label = static_cast<std::uint32_t>(program().kernels.size()) + item_ref(item);
    event.stream = node.stream;
    event.microbatch = item_microbatch(item) == kNoMicrobatch ? -1 : item_microbatch(item);
    event.peer = is_p2p(program().endpoints[item_ref(item)].kind) ? operation.peer : -1;
    event.start = event.ready = node.start;
    event.end = operation.end;
    events_.push_back({event, operation.item});
  }
}

std::vector<Finding> GlooBackend::end_step(int arm, RunRecord& record) {
  const std::lock_guard lock(mutex_);
  slots_->report_leaks();
  const std::uint32_t base = label_base(record, program());
  std::stable_sort(events_.begin(), events_.end(), [](const EventRow& a, const EventRow& b) {
    return a.event.start != b.event.start ? a.event.start < b.event.start : a.item < b.item;
  });
  for (EventRow& row : events_) {
    row.event.label += base;
    record.events.push_back(row.event);
  }
  record.memory.insert(record.memory.end(), memory_.begin(), memory_.end());
  // Every rank knows all of them; the receiver speaks.
  for (const Finding& finding : matching_.labels[arm == 0 ? 0 : 1])
    if (finding.operations.front().rank == transport_.rank()) log_.add(finding);
  return log_.take();
}

}  // namespace plumbline::gloo
