#include "backends/cuda/double/machine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

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

Machine::Machine(int devices, const RunConfig& config)
    : devices_(devices),
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

void* Machine::allocate(std::size_t bytes, int device) {
  Block block;
  block.bytes = std::max<std::size_t>(bytes, 1);
  block.memory = std::make_unique<std::byte[]>(block.bytes + 64);
  block.device = device;
  // Aligned as CUDA aligns, as far as it matters; and never what an earlier owner left.
  auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
  address = (address + 63) / 64 * 64;
  auto* data = reinterpret_cast<std::byte*>(address);
  std::memset(data, 0xA5, block.bytes);
  if (device >= 0) {
    Bytes& held = device_bytes_[static_cast<std::size_t>(device)];
    held += static_cast<Bytes>(bytes);
    device_peak_[static_cast<std::size_t>(device)] = std::max(peak(device), held);
  }
  blocks_[data] = std::move(block);
  return data;
}

bool Machine::release(void* data, bool waits) {
  const auto found = blocks_.find(static_cast<std::byte*>(data));
  if (found == blocks_.end()) return false;
  if (waits && incomplete() > 0) return false;
  if (found->second.device >= 0)
    device_bytes_[static_cast<std::size_t>(found->second.device)] -= static_cast<Bytes>(found->second.bytes);
  blocks_.erase(found);
  return true;
}

bool Machine::holds(const void* data, Bytes bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  auto after = blocks_.upper_bound(begin);
  if (after == blocks_.begin()) return false;
  const auto& [address, block] = *--after;
  return begin + bytes <= address + block.bytes;
}

CUstream_st* Machine::create_stream() {
  int& next = next_stream_[static_cast<std::size_t>(current)];
  if (next == kStreams) return destroyed_stream();
  streams_.push_back(std::make_unique<CUstream_st>(CUstream_st{current, next++, false}));
  return streams_.back().get();
}

// One whose number is free again; null: there is none.
CUstream_st* Machine::destroyed_stream() {
  for (const auto& stream : streams_) {
    if (!stream->destroyed || stream->device != current || !idle(stream.get())) continue;
    stream->destroyed = false;
    return stream.get();
  }
  return nullptr;
}

CUevent_st* Machine::create_event(bool timing) {
  events_.push_back(std::make_unique<CUevent_st>(CUevent_st{timing, false, 0}));
  return events_.back().get();
}

bool Machine::valid(const CUstream_st* stream) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [&](const auto& known) { return known.get() == stream && !known->destroyed; });
}
bool Machine::valid(const CUevent_st* event) const { return event != nullptr; }
bool Machine::valid(const ncclComm* comm) const {
  return std::any_of(comms_.begin(), comms_.end(), [&](const auto& known) { return known.get() == comm; });
}

std::uint32_t Machine::append(Item item, Call call) {
  program_.items.push_back(item);
  calls_.push_back(std::move(call));
  return static_cast<std::uint32_t>(calls_.size() - 1);
}

void Machine::kernel(CUstream_st* stream, unsigned row, Closure closure) {
  Call call;
  call.closure = std::move(closure);
  call.takes = std::exchange(next_takes, 0);
  const Item item = make_item(ItemOp::kLaunch, kNoMicrobatch, 0, row, static_cast<unsigned>(stream->index));
  const std::uint32_t index = append(item, std::move(call));
  static_cast<void>(world_.launch(static_cast<std::uint32_t>(stream->device), index, item));
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
  const Item item = make_item(ItemOp::kLaunch, kNoMicrobatch, 0, 4, static_cast<unsigned>(stream->index));
  const std::uint32_t index = append(item, std::move(call));
  static_cast<void>(world_.launch(static_cast<std::uint32_t>(stream->device), index, item));
}

namespace {

bool reached(const std::uint32_t* address, std::uint32_t value) {
  return static_cast<std::int32_t>(*address - value) >= 0;
}

}  // namespace

void Machine::wake_waiters() {
  std::vector<std::pair<sim::NodeId, std::uint32_t>> still;
  for (const auto& [node, item] : std::exchange(waiters_, {})) {
    if (reached(calls_[item].awaited, calls_[item].value)) {
      world_.end_kernel(node);
    } else {
      still.emplace_back(node, item);
    }
  }
  waiters_.insert(waiters_.end(), still.begin(), still.end());
}

std::optional<Nanoseconds> Machine::start(sim::NodeId node, std::uint32_t item) {
  // The closure may append calls in principle, so nothing of calls_ is held across it.
  if (calls_[item].awaited != nullptr) {
    if (reached(calls_[item].awaited, calls_[item].value)) return 0;
    waiters_.emplace_back(node, item);
    return std::nullopt;
  }
  const Nanoseconds takes = calls_[item].takes;
  const Closure closure = std::move(calls_[item].closure);
  if (closure) closure();
  return takes;
}

void Machine::record(CUevent_st* event, CUstream_st* stream) {
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

std::string Machine::verdict(bool with_deadlock) {
  Verdict verdict;
  verdict.program = program_.name;
  ModeVerdict mode;
  mode.mode = world_.model().name();
  mode.findings = world_.log().take();
  world_.log().begin(program_);
  if (with_deadlock && incomplete() > 0 && !world_.events_pending()) {
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
