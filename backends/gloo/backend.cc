// The Backend's calls, in host order. What runs is in backend_run.cc.
#include "backends/gloo/backend.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline::gloo {

using sim::Because;
using sim::NodeId;
using sim::NodeKind;

GlooBackend::GlooBackend(Transport& transport, Worker& worker, GlooOptions options)
    : transport_(transport), worker_(worker), options_(options) {}

GlooBackend::~GlooBackend() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane == nullptr) continue;
    lane->wake.notify_all();
    if (lane->thread.joinable()) lane->thread.join();
  }
}

Nanoseconds GlooBackend::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
             .count() -
         options_.epoch;
}

Status GlooBackend::bind(const LinkedProgram& linked) {
  const Program& program = *linked.program;
  if (program.threads.size() != static_cast<std::size_t>(program.grid.world()) ||
      !program.comm_calls.empty()) {
    return fail(ErrorCode::kUnsupported,
                "the gloo backend runs Programs of one host thread a rank, without calls on communicators");
  }
  if (program.extras.graphs)
    return fail(ErrorCode::kUnsupported,
                "there are no CUDA graphs over Gloo; leave --cuda-graphs off, or give --backend cuda or sim");
  if (program.grid.world() != transport_.size()) {
    return fail(ErrorCode::kUsage, fmt::format("the Program is for {} ranks, and {} processes run it",
                                               program.grid.world(), transport_.size()));
  }
  if (linked.communicators.size() > kMostLanes)
    return fail(ErrorCode::kUnsupported, fmt::format("{} communicators; the gloo backend has tags for {}",
                                                     linked.communicators.size(), kMostLanes));
  Result<Matching> matching = match(linked);
  if (!matching) return tl::unexpected(matching.error());
  matching_ = std::move(*matching);
  linked_ = &linked;
  thread_ = static_cast<std::uint32_t>(transport_.rank());
  slots_.emplace(program, thread_, log_, &persistent_);
  lanes_.resize(std::max(lanes_.size(), linked.communicators.size()));
  for (std::size_t c = 0; c < linked.communicators.size(); ++c) {
    const std::vector<Rank>& members = linked.communicators[c].members;
    const auto own = std::find(members.begin(), members.end(), transport_.rank());
    if (own == members.end()) continue;
    if (lanes_[c] == nullptr) {
      lanes_[c] = std::make_unique<Lane>();
      lanes_[c]->thread = std::thread([this, lane = lanes_[c].get()] { run_lane(*lane); });
    }
    Membership membership;
    membership.members = members;
    membership.position = static_cast<std::int32_t>(own - members.begin());
    membership.lane = static_cast<std::uint32_t>(c);
    lanes_[c]->membership = std::move(membership);
  }
  return {};
}

Status GlooBackend::begin_step(const LinkedProgram& linked) {
  const std::lock_guard lock(mutex_);
  if (linked_ != &linked) PL_TRY(bind(linked));
  log_.begin(program());
  graph_.clear();
  operations_.clear();
  uses_.clear();
  streams_.assign(program().streams.size(), Stream{});
  communicator_tail_.assign(linked.communicators.size(), 0);
  last_group_ = 0;
  kernels_.clear();
  values_.assign(program().variables.size(), 0.0);
  events_.clear();
  memory_.clear();
  noted_ = -1;
  slots_->begin_step();
  note_memory();
  return bind_persistent();
}

Status GlooBackend::bind_persistent() {
  for (const std::uint16_t slot_class : slots_->classes()) {
    const SlotClass& row = program().slots[slot_class];
    if (!row.persistent) continue;
    sim::PersistentSlot& slot = persistent_.at(row.name);
    if (std::exchange(slot.bound, true)) continue;
    PL_TRY(worker_.bind(row, {slot.memory.get(), row.bytes, row.dtype}));
  }
  return {};
}

void GlooBackend::note_memory() {
  const Bytes live = slots_->live_bytes();
  if (!options_.record_memory || live == noted_) return;
  noted_ = live;
  memory_.push_back({step_, transport_.rank(), now(), live});
}

void GlooBackend::enqueue(NodeId node, int stream) {
  Stream& queue = streams_[static_cast<std::size_t>(stream)];
  graph_[node].stream = static_cast<std::uint8_t>(stream);
  graph_.depend(node, queue.tail, Because::kStream);
  for (const NodeId wait : queue.waits) graph_.depend(node, wait, Because::kWaitsFor);
  queue.waits.clear();
  queue.tail = node;
}

// The stream's last node, after one is made that collects pending waits.
NodeId GlooBackend::tail(int stream) {
  Stream& queue = streams_[static_cast<std::size_t>(stream)];
  if (!queue.waits.empty()) {
    const NodeId point = graph_.add(NodeKind::kPoint, thread_, sim::kNoItem);
    enqueue(point, stream);
    graph_.seal(point);
  }
  return queue.tail;
}

Result<Issued> GlooBackend::launch(std::uint32_t /*thread*/, std::uint32_t item_index, Item item) {
  const std::lock_guard lock(mutex_);
  const Kernel& kernel = program().kernels[item_ref(item)];
  const int microbatch = item_microbatch(item);
  const auto in = [](const RowList& list, std::uint16_t slot) {
    return std::find(list.begin(), list.end(), slot) != list.end();
  };
  const NodeId node = graph_.add(NodeKind::kKernel, thread_, item_index);
  graph_[node].first = static_cast<std::uint32_t>(uses_.size());
  for (const std::uint16_t slot : kernel.reads) {
    uses_.push_back(in(kernel.writes, slot) ? slots_->update(slot, microbatch, item_index)
                                            : slots_->read(slot, microbatch, item_index));
  }
  for (const std::uint16_t slot : kernel.frees) uses_.push_back(slots_->read(slot, microbatch, item_index));
  for (const std::uint16_t slot : kernel.writes)
    if (!in(kernel.reads, slot)) uses_.push_back(slots_->write(slot, microbatch, item_index));
  graph_[node].count = static_cast<std::uint32_t>(uses_.size()) - graph_[node].first;
  note_memory();
  for (const std::uint16_t slot : kernel.frees) slots_->release(slot, microbatch, item_index);
  note_memory();
  enqueue(node, item_stream(item));
  graph_.seal(node);
  settle();
  return Issued{0, node};
}

// In the order of execution: by communicator (N16), collectives before p2p (N15), otherwise as called;
// collectives of no bytes are dropped (N60). Receives allocate; what the group releases goes after that.
void GlooBackend::add_operations(const GroupCall& call) {
  const std::size_t first = operations_.size();
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const Item item = call.entries[i];
    const Endpoint& endpoint = program().endpoints[item_ref(item)];
    if (!is_p2p(endpoint.kind) && endpoint.bytes == 0) continue;
    const LinkedEndpoint& linked = linked_->at(thread_, item_ref(item));
    const int microbatch = item_microbatch(item);
    Operation operation;
    operation.item = call.first_item + static_cast<std::uint32_t>(i);
    operation.communicator = linked.communicator;
    operation.position = linked.position;
    operation.peer = linked.peer;
    operation.peer_position = linked.peer_position;
    operation.created = now();
    if (endpoint.kind == EndpointKind::kSend) {
      operation.use = slots_->read(endpoint.slot, microbatch, operation.item);
    } else if (endpoint.kind == EndpointKind::kRecv ||
               (endpoint.kind == EndpointKind::kBroadcast && !slots_->live(endpoint.slot, microbatch))) {
      operation.use = slots_->write(endpoint.slot, microbatch, operation.item);
    } else {
      operation.use = slots_->update(endpoint.slot, microbatch, operation.item);
    }
    operations_.push_back(operation);
  }
  note_memory();
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const Endpoint& endpoint = program().endpoints[item_ref(call.entries[i])];
    if (!endpoint.free_after) continue;
    slots_->release(endpoint.slot, item_microbatch(call.entries[i]),
                    call.first_item + static_cast<std::uint32_t>(i));
  }
  note_memory();
  const auto order = [&](const Operation& operation) {
    return std::pair(operation.communicator, is_p2p(endpoint_of(operation).kind));
  };
  std::stable_sort(operations_.begin() + static_cast<std::ptrdiff_t>(first), operations_.end(),
                   [&](const Operation& a, const Operation& b) { return order(a) < order(b); });
}

Result<Issued> GlooBackend::group(const GroupCall& call) {
  const std::lock_guard lock(mutex_);
  const std::size_t first = operations_.size();
  add_operations(call);
  NodeId node = 0;
  for (std::size_t begin = first; begin < operations_.size();) {
    const std::int32_t communicator = operations_[begin].communicator;
    const bool p2p = is_p2p(endpoint_of(operations_[begin]).kind);
    std::size_t end = begin;
    while (end < operations_.size() && operations_[end].communicator == communicator &&
           is_p2p(endpoint_of(operations_[end]).kind) == p2p)
      ++end;
    const bool behind_compute = call.after_compute && begin == first && call.stream != kComputeStream;
    const NodeId compute = behind_compute ? tail(kComputeStream) : 0;
    node = graph_.add(NodeKind::kGroup, thread_, call.first_item);
    graph_[node].first = static_cast<std::uint32_t>(begin);
    graph_[node].count = static_cast<std::uint32_t>(end - begin);
    for (std::size_t i = begin; i < end; ++i) operations_[i].node = node;
    graph_.depend(node, compute, Because::kCompute);
    NodeId& previous = communicator_tail_[static_cast<std::size_t>(communicator)];
    graph_.depend(node, previous, Because::kCommunicator);
    if (options_.strict_host_order) graph_.depend(node, last_group_, Because::kLaunchOrder);
    enqueue(node, call.stream);
    previous = last_group_ = node;
    graph_.seal(node);
    begin = end;
  }
  settle();
  return Issued{options_.launch_blocking ? node : 0, node};
}

Status GlooBackend::stream_wait(std::uint32_t /*thread*/, int stream, Token token) {
  const std::lock_guard lock(mutex_);
  const auto node = static_cast<NodeId>(token);
  if (!graph_[node].done) streams_[static_cast<std::size_t>(stream)].waits.push_back(node);
  return {};
}

Result<Token> GlooBackend::marker(std::uint32_t /*thread*/, int stream) {
  const std::lock_guard lock(mutex_);
  NodeId node = 0;
  if (stream >= 0) {
    node = tail(stream);
  } else {
    node = graph_.add(NodeKind::kPoint, thread_, sim::kNoItem);
    for (std::size_t s = 0; s < streams_.size(); ++s)
      graph_.depend(node, tail(static_cast<int>(s)), Because::kWaitsFor);
    graph_.seal(node);
  }
  settle();
  return Token{node};
}

Status GlooBackend::free(std::uint32_t /*thread*/, std::uint32_t item_index, SlotRef slot) {
  const std::lock_guard lock(mutex_);
  slots_->release(slot.slot_class, slot.microbatch, item_index);
  note_memory();
  return {};
}

Result<Token> GlooBackend::read(std::uint32_t /*thread*/, std::uint32_t item_index, unsigned variable) {
  const std::lock_guard lock(mutex_);
  const NodeId node = graph_.add(NodeKind::kRead, thread_, item_index);
  graph_[node].first = static_cast<std::uint32_t>(uses_.size());
  graph_[node].count = 1;
  uses_.push_back(slots_->read(program().variables[variable].slot, kNoMicrobatch, item_index));
  enqueue(node, kComputeStream);
  graph_.seal(node);
  settle();
  return Token{node};
}

Result<double> GlooBackend::value(std::uint32_t /*thread*/, unsigned variable) {
  const std::lock_guard lock(mutex_);
  return values_[variable];
}

Poll GlooBackend::poll(std::uint32_t /*thread*/, Token token) {
  const std::lock_guard lock(mutex_);
  if (error_) return {PollState::kFailed, error_->message};
  if (graph_[static_cast<NodeId>(token)].done) return {};
  return {PollState::kPending, {}};
}

std::optional<std::uint32_t> GlooBackend::running_item() const {
  const std::uint32_t item = running_item_.load(std::memory_order_relaxed);
  return item == sim::kNoItem ? std::optional<std::uint32_t>() : std::optional(item);
}

std::vector<EnqueuedOperation> GlooBackend::operations() const {
  const std::lock_guard lock(mutex_);
  std::vector<EnqueuedOperation> out;
  for (const Operation& operation : operations_)
    out.push_back({operation.item, operation.communicator, operation.position, operation.peer_position,
                   operation.node, operation.created, operation.start, operation.end});
  return out;
}

}  // namespace plumbline::gloo
