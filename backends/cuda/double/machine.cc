#include "backends/cuda/double/machine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "backends/cuda/double/capture.h"
#include "sim/deadlock.h"
#include "sim/nccl_model.h"

namespace plumbline::cuda {
namespace {

constexpr unsigned kRows = 8192;  // different operations of one device
constexpr int kStreams = 255;     // of one device
constexpr std::array<const char*, 5> kKernels = {"host function", "copy", "fill", "write of a value",
                                                 "wait for a value"};

Program empty_program(int devices) {
  Program program;
  program.name = "calls";
  program.grid = *RankGrid::create({.pp = devices});
  SlotClass& memory = program.slots.emplace_back();
  memory.name = "memory";
  memory.per_microbatch = false;
  for (const char* name : kKernels) program.kernels.emplace_back().name = name;
  for (int s = 1; s < kStreams; ++s) program.streams.push_back(fmt::format("stream {}", s));
  for (int d = 0; d < devices; ++d) program.threads.push_back({d, 0, 0});
  return program;
}

LinkedProgram empty_linked(const Program& program) {
  LinkedProgram linked;
  linked.program = &program;
  const auto threads = static_cast<std::uint32_t>(program.threads.size());
  for (std::uint32_t t = 0; t < threads; ++t) linked.windows.push_back({t * kRows, 0, kRows});
  linked.endpoints.resize(static_cast<std::size_t>(threads) * kRows);
  linked.comm_calls.resize(threads);
  return linked;
}

SimOptions options_of(const RunConfig& config) {
  SimOptions options;
  options.model = model_of(config.sim);
  options.time = TimeModel(config);
  options.record_events = options.record_memory = false;
  return options;
}

}  // namespace

Machine::Machine(int devices, const RunConfig& config, std::shared_ptr<Arena> arena)
    : captures(std::make_unique<Captures>()),
      arena_(std::move(arena)),
      devices_(devices),
      program_(empty_program(std::max(devices, 1))),  // a machine without devices has a world to say so
      linked_(empty_linked(program_)),
      world_(options_of(config), {}),
      next_stream_(static_cast<std::size_t>(devices), 0),
      polled_(static_cast<std::size_t>(devices), 0),
      device_bytes_(static_cast<std::size_t>(devices), 0),
      device_peak_(static_cast<std::size_t>(devices), 0) {
  world_.set_live(this);
  static_cast<void>(world_.begin_step(linked_));  // fails for workers only
}

Machine::~Machine() = default;

void* Machine::allocate(std::size_t bytes, int device) {
  Block block;
  block.bytes = std::max<std::size_t>(bytes, 1);
  block.device = device;
  block.owner = caller->process;
  std::byte* data = nullptr;
  if (arena_ != nullptr) {
    data = arena_->allocate(block.bytes);
    if (data == nullptr) return nullptr;
  } else {
    block.memory = std::make_unique<std::byte[]>(block.bytes + 64);
    // Aligned as CUDA aligns, as far as it matters.
    auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
    address = (address + 63) / 64 * 64;
    data = reinterpret_cast<std::byte*>(address);
  }
  std::memset(data, 0xA5, block.bytes);  // never what an earlier owner left
  if (device >= 0) {
    Bytes& held = device_bytes_[static_cast<std::size_t>(device)];
    held += static_cast<Bytes>(bytes);
    device_peak_[static_cast<std::size_t>(device)] = std::max(peak(device), held);
  }
  blocks_[data] = std::move(block);
  return data;
}

bool Machine::release(void* data) {
  const auto found = blocks_.find(static_cast<std::byte*>(data));
  if (found == blocks_.end() || busy(*caller->process)) return false;
  drop(found);
  return true;
}

void Machine::drop(Blocks::iterator block) {
  if (block->second.device >= 0)
    device_bytes_[static_cast<std::size_t>(block->second.device)] -= static_cast<Bytes>(block->second.bytes);
  if (block->second.memory == nullptr) arena_->release(const_cast<std::byte*>(block->first));
  blocks_.erase(block);
}

// Whether work is enqueued: on any device, or on those of a process elsewhere.
bool Machine::busy(const Process& process) const {
  if (!process.elsewhere) return incomplete() > 0;
  const sim::DeviceGraph& graph = world_.graph();
  for (sim::NodeId node = 1; incomplete() > 0 && node < graph.size(); ++node) {
    if (!graph[node].done && process.devices.contains(static_cast<int>(graph[node].thread))) return true;
  }
  return false;
}

bool Machine::holds(const void* data, Bytes bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  auto after = blocks_.upper_bound(begin);
  if (after == blocks_.begin()) return false;
  const auto& [address, block] = *--after;
  return begin + bytes <= address + block.bytes;
}

CUstream_st* Machine::create_stream() {
  caller->process->devices.insert(caller->device);
  int& next = next_stream_[static_cast<std::size_t>(caller->device)];
  if (next == kStreams) return destroyed_stream();
  streams_.push_back(
      std::make_unique<CUstream_st>(CUstream_st{caller->device, next++, false, caller->process}));
  return streams_.back().get();
}

// One whose number is free again; null: there is none.
CUstream_st* Machine::destroyed_stream() {
  for (const auto& stream : streams_) {
    if (!stream->destroyed || stream->device != caller->device || !idle(stream.get())) continue;
    stream->destroyed = false;
    stream->owner = caller->process;
    return stream.get();
  }
  return nullptr;
}

CUevent_st* Machine::create_event(bool timing) {
  auto event = std::make_unique<CUevent_st>(CUevent_st{timing, false, 0});
  CUevent_st* const made = event.get();
  events_[made] = std::move(event);
  return made;
}

bool Machine::valid(const CUstream_st* stream) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& known) {
    return known.get() == stream && !known->destroyed && known->owner == caller->process;
  });
}
bool Machine::valid(const CUevent_st* event) const { return events_.contains(event); }
bool Machine::valid(const ncclComm* comm) const {
  return std::any_of(comms_.begin(), comms_.end(), [&](const auto& known) {
    return known.get() == comm && known->owner == caller->process;
  });
}

std::uint32_t Machine::append(Item item, Call call) {
  program_.items.push_back(item);
  calls_.push_back(std::move(call));
  return static_cast<std::uint32_t>(calls_.size() - 1);
}

void Machine::launch(int device, int stream, unsigned row, Call call) {
  call.caller = caller;
  const Item item = make_item(ItemOp::kLaunch, kNoMicrobatch, 0, row, static_cast<unsigned>(stream));
  const std::uint32_t index = append(item, std::move(call));
  static_cast<void>(world_.launch(static_cast<std::uint32_t>(device), index, item));
}

void Machine::enqueue(CUstream_st* stream, unsigned row, Work work) {
  work.takes = std::exchange(caller->next_takes, 0);
  if (stream->capture != 0) return captures->kernel(stream, row, std::move(work));
  Call call;
  call.work = std::move(work);
  launch(stream->device, stream->index, row, std::move(call));
}

void Machine::kernel(CUstream_st* stream, unsigned row, Closure closure) {
  Work work;
  work.closure = std::move(closure);
  enqueue(stream, row, std::move(work));
}

void Machine::host_function(CUstream_st* stream, HostFunction function, void* argument) {
  if (!caller->process->elsewhere) return kernel(stream, 0, [=] { function(argument); });
  Work work;
  work.function = function;
  work.argument = argument;
  enqueue(stream, 0, std::move(work));
}

int Machine::refuses_unsafe() { return captures->refuses_unsafe(*caller->process); }

bool Machine::host_function_done(std::uint64_t node) {
  const auto found = outstanding_.find(static_cast<sim::NodeId>(node));
  if (found == outstanding_.end() || found->second.process != caller->process) return false;
  world_.end_kernel(found->first, found->second.end);
  outstanding_.erase(found);
  return true;
}

void Machine::write_value(CUstream_st* stream, std::uint32_t* address, std::uint32_t value) {
  kernel(stream, 3, [this, address, value] {
    *address = value;
    wake_waiters();
  });
}

void Machine::wait_value(CUstream_st* stream, const std::uint32_t* address, std::uint32_t value) {
  Call call;
  call.awaited = address;
  call.value = value;
  launch(stream->device, stream->index, 4, std::move(call));
}

namespace {

bool reached(const std::uint32_t* address, std::uint32_t value) {
  return static_cast<std::int32_t>(*address - value) >= 0;
}

}  // namespace

void Machine::wake_waiters() {
  std::vector<std::pair<sim::NodeId, std::uint32_t>> still;
  for (const auto& [node, item] : std::exchange(waiters_, {})) {
    if (calls_[item].caller->process->ended || reached(calls_[item].awaited, calls_[item].value)) {
      world_.end_kernel(node, world_.now());
    } else {
      still.emplace_back(node, item);
    }
  }
  waiters_.insert(waiters_.end(), still.begin(), still.end());
}

std::optional<Nanoseconds> Machine::start(sim::NodeId node, std::uint32_t item) {
  // The closure may append calls in principle, so nothing of calls_ is held across it.
  Caller& by = *calls_[item].caller;
  if (by.process->ended) return 0;
  if (const Work& work = calls_[item].work; work.function != nullptr) {
    by.due.push_back({node, work.function, work.argument});
    outstanding_[node] = {by.process, world_.now() + work.takes};
    return std::nullopt;
  }
  if (calls_[item].awaited != nullptr) {
    if (reached(calls_[item].awaited, calls_[item].value)) return 0;
    waiters_.emplace_back(node, item);
    return std::nullopt;
  }
  const Nanoseconds takes = calls_[item].work.takes;
  const Closure closure = std::move(calls_[item].work.closure);
  if (closure) closure();
  return takes;
}

void Machine::record(CUevent_st* event, CUstream_st* stream) {
  if (stream->capture != 0) return captures->record(event, stream);
  event->capture = 0;
  event->recorded = true;
  event->token = world_.point(static_cast<std::uint32_t>(stream->device), stream->index);
}

void Machine::wait(CUstream_st* stream, const CUevent_st* event) {
  if (!event->recorded || event->token == 0) return;  // an event never recorded holds nobody back
  static_cast<void>(
      world_.stream_wait(static_cast<std::uint32_t>(stream->device), stream->index, event->token));
}

bool Machine::done(const CUevent_st* event) {
  if (!event->recorded) return true;
  if (polls_step) step();
  if (world_.graph()[static_cast<sim::NodeId>(event->token)].done) return true;
  const std::uint32_t thread = world_.graph()[static_cast<sim::NodeId>(event->token)].thread;
  polled_[thread] = event->token;
  return false;
}

bool Machine::idle(CUstream_st* stream) {
  if (polls_step) step();
  const Result<Token> tail = world_.marker(static_cast<std::uint32_t>(stream->device), stream->index);
  return *tail == 0 || world_.graph()[static_cast<sim::NodeId>(*tail)].done;
}

Nanoseconds Machine::time_of(const CUevent_st* event) const {
  return world_.graph()[static_cast<sim::NodeId>(event->token)].end;
}

bool Machine::step() {
  const auto complete = [this] { return world_.graph().size() - world_.graph().incomplete(); };
  const sim::NodeId before = complete();
  // A host may have written a value that something waits for.
  wake_waiters();
  world_.settle();
  if (complete() > before) return true;
  if (!world_.fire()) return false;
  world_.settle();
  return true;
}

Process& Machine::join() {
  joined_.push_back(std::make_unique<Process>());
  joined_.back()->elsewhere = true;
  return *joined_.back();
}

void Machine::leave(Process& process) {
  process.ended = true;
  for (auto at = outstanding_.begin(); at != outstanding_.end();) {
    if (at->second.process != &process) {
      ++at;
      continue;
    }
    world_.end_kernel(at->first, world_.now());
    at = outstanding_.erase(at);
  }
  wake_waiters();
  std::set<int> ended;
  for (const auto& comm : comms_) {
    if (comm->owner == &process && !comm->ended) ended.insert(comm->device);
  }
  for (const int device : ended) end_process(device);
  for (const auto& stream : streams_) {
    if (stream->owner == &process) stream->destroyed = true;
  }
  // What is still to end may write to them.
  if (busy(process)) return;
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    if (block->second.owner == &process) drop(block);
    block = next;
  }
}

std::string Machine::verdict(bool with_deadlock) {
  Verdict verdict;
  verdict.program = program_.name;
  ModeVerdict mode;
  mode.mode = world_.model().name();
  mode.findings = world_.log().take();
  world_.log().begin(program_);
  if (with_deadlock && incomplete() > 0 && !world_.events_pending() && outstanding_.empty()) {
    std::vector<sim::HostState> hosts(static_cast<std::size_t>(devices_));
    for (std::size_t d = 0; d < hosts.size(); ++d) {
      hosts[d].last.item_index = static_cast<std::uint32_t>(program_.items.size());
      if (polled_[d] == 0 || world_.graph()[static_cast<sim::NodeId>(polled_[d])].done) continue;
      hosts[d].last.state = AdvanceState::kBlocked;
      hosts[d].last.waiting_for = polled_[d];
    }
    const WaitGraph graph = sim::wait_graph_of(world_, hosts);
    mode.completes = false;
    if (!graph.deadlocked().empty()) mode.findings.push_back(deadlock_finding(graph));
  }
  verdict.modes.push_back(std::move(mode));
  return verdict_json(verdict);
}

}  // namespace plumbline::cuda
