// Ranks, slots and tokens; the calls of a step are in backend_calls.cc.
#include "backends/cuda/backend.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "backends/cuda/backend_rank.h"
#include "engine/base/assert.h"

namespace plumbline::cuda {
namespace {

constexpr std::size_t kVariableBytes = 8;

std::set<int> streams_of(const Program& program, std::uint32_t thread) {
  std::set<int> rows{kComputeStream};
  for (const Item item : program.thread_items(thread)) {
    switch (item_op(item)) {
      case ItemOp::kLaunch:
      case ItemOp::kOp:
        rows.insert(item_stream(item));
        break;
      case ItemOp::kRecord:
      case ItemOp::kWaitEvent:
      case ItemOp::kSyncStream:
        rows.insert(static_cast<int>(item_aux(item)));
        break;
      default:
        break;
    }
  }
  return rows;
}

// The most slots of each sort that are live at one time, in host order, both arms counted; of those without memory the
// most bytes.
class LiveSlots {
 public:
  LiveSlots(const Program& program, std::uint32_t thread, const StageKernels& kernels) : program_(program) {
    for (const SlotClass& row : program.slots) places_.push_back(kernels.memory(row));
    for (const Item item : program.thread_items(thread)) count(item);
  }
  std::map<MemoryPool::Sort, std::size_t> peaks;
  Bytes unseen = 0;

 private:
  void write(std::uint16_t slot, int microbatch) {
    const SlotClass& row = program_.slots[slot];
    if (row.persistent || !live_.insert({slot, row.per_microbatch ? microbatch : -1}).second) return;
    if (!places_[slot]) {
      unseen = std::max(unseen, unseen_now_ += row.bytes);
      return;
    }
    const MemoryPool::Sort sort{*places_[slot], row.bytes};
    peaks[sort] = std::max(peaks[sort], ++now_[sort]);
  }
  void release(std::uint16_t slot, int microbatch) {
    const SlotClass& row = program_.slots[slot];
    if (live_.erase({slot, row.per_microbatch ? microbatch : -1}) == 0) return;
    if (places_[slot]) {
      --now_[{*places_[slot], row.bytes}];
    } else {
      unseen_now_ -= row.bytes;
    }
  }
  void count(Item item) {
    const int microbatch = item_microbatch(item);
    if (item_op(item) == ItemOp::kLaunch) {
      const Kernel& kernel = program_.kernels[item_ref(item)];
      for (const std::uint16_t slot : kernel.writes) write(slot, microbatch);
      for (const std::uint16_t slot : kernel.frees) release(slot, microbatch);
    } else if (item_op(item) == ItemOp::kOp) {
      const Endpoint& endpoint = program_.endpoints[item_ref(item)];
      if (endpoint.kind != EndpointKind::kSend) write(endpoint.slot, microbatch);
      if (endpoint.free_after) release(endpoint.slot, microbatch);
    } else if (item_op(item) == ItemOp::kFree) {
      release(static_cast<std::uint16_t>(item_ref(item)), microbatch);
    }
  }

  const Program& program_;
  std::set<std::pair<std::uint16_t, int>> live_;
  std::vector<std::optional<MemoryKind>> places_;  // by slot
  std::map<MemoryPool::Sort, std::size_t> now_;
  Bytes unseen_now_ = 0;
};

}  // namespace

CudaBackend::CudaBackend(std::vector<ServedRank> ranks, Transport& transport, CudaOptions options)
    : transport_(&transport), options_(options) {
  PL_ASSERT(!ranks.empty());
  PL_ASSERT(options.activity == nullptr || ranks.size() == 1);
  for (ServedRank& rank : ranks) {
    served_.push_back(rank.local.thread);
    ranks_.push_back(std::make_unique<Rank>(std::move(rank), options.record_events));
  }
}

CudaBackend::~CudaBackend() = default;

Status CudaBackend::set_program(const LinkedProgram& linked) {
  linked_ = &linked;
  if (linked.program->threads.size() != static_cast<std::size_t>(linked.program->grid.world()))
    return fail(ErrorCode::kUnsupported, "the CUDA backend takes one host thread a rank");
  ProgramExtras taken;
  taken.graphs = linked.program->extras.graphs;
  if (linked.program->extras != taken) {
    return fail(
        ErrorCode::kUnsupported,
        "the CUDA backend takes no groups on several streams, no legacy default stream and no processes "
        "that end");
  }
  PL_TRY(check_graphs());
  index_.assign(linked.program->threads.size(), ranks_.size());
  const Result<std::vector<int>> rows = transport_->stream_rows(linked);
  if (!rows) return tl::unexpected(rows.error());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    index_[ranks_[i]->local().thread] = i;
    ranks_[i]->rows = *rows;
    PL_TRY(prepare(*ranks_[i]));
  }
  return transport_->set_program(linked);
}

Status CudaBackend::prepare(Rank& rank) {
  const std::uint32_t thread = rank.local().thread;
  std::set<int> used;
  for (const int row : streams_of(program(), thread)) used.insert(rank.rows[static_cast<std::size_t>(row)]);
  std::erase_if(rank.streams, [&](const auto& stream) { return !used.contains(stream.first); });
  for (const int row : used) {
    if (rank.streams.contains(row)) continue;
    Result<Stream> stream = Stream::create(rank.local().device);
    if (!stream) return tl::unexpected(stream.error());
    rank.streams.emplace(row, std::move(*stream));
  }
  if (rank.variables.get() == nullptr) {
    Result<Memory> memory = Memory::allocate(rank.local().device, MemoryKind::kHost, 256 * kVariableBytes);
    if (!memory) return tl::unexpected(memory.error());
    rank.variables = std::move(*memory);
  }
  rank.slots = std::make_unique<sim::Slots>(program(), thread, log_, nullptr);
  for (const std::uint16_t slot_class : rank.slots->classes()) {
    const SlotClass& row = program().slots[slot_class];
    if (!row.persistent) continue;
    Rank::Persistent& slot = rank.persistent[row.name];
    if (slot.bound) {
      PL_ASSERT_MSG(slot.bytes == row.bytes, row.name);
      continue;
    }
    const MemoryKind kind = rank.served.kernels->memory(row).value_or(MemoryKind::kHost);
    Result<Memory> memory = Memory::allocate(rank.local().device, kind, row.bytes);
    if (!memory) return tl::unexpected(memory.error());
    slot = {std::move(*memory), row.bytes, true};
    const StreamHandle compute = rank.stream(kComputeStream);
    if (kind != MemoryKind::kDevice) {
      std::fill_n(slot.memory.get(), row.bytes, std::byte{0});
    } else {
      PL_CUDA(*rank.local().device.libraries, cudaMemsetAsync, slot.memory.get(), 0,
              static_cast<std::size_t>(row.bytes), compute);
    }
    PL_TRY(rank.served.kernels->bind(row, {slot.memory.get(), row.bytes, row.dtype}, compute));
  }
  const LiveSlots live(program(), thread, *rank.served.kernels);
  PL_TRY(own_blocks(rank));
  for (const auto& [sort, count] : live.peaks)
    if (!rank.graphs) PL_TRY(rank.pool.reserve(sort, count + 2));
  return rank.served.kernels->warm_up(program(), live.unseen, rank.stream(kComputeStream));
}

Status CudaBackend::begin_step(const LinkedProgram& linked) {
  if (linked_ != &linked) PL_TRY(set_program(linked));
  if (const Poll poll = transport_->ready(); poll.state != PollState::kDone)
    return fail(ErrorCode::kState, fmt::format("the communicators are not there: {}", poll.reason));
  log_.begin(program());
  tokens_.clear();
  operations_.clear();
  graphs_.clear();
  completed_ = 0;
  if (options_.activity != nullptr) options_.activity->begin_step();
  for (const auto& rank : ranks_) {
    rank->events.reset();
    rank->instances.clear();
    rank->written.clear();
    rank->pool.settle();
    rank->slots->begin_step();
    rank->memory.clear();
    rank->noted = -1;
    if (!options_.record_events) continue;
    const Result<EventHandle> epoch = start_event(*rank, rank->stream(kComputeStream));
    if (!epoch) return tl::unexpected(epoch.error());
    rank->epoch = *epoch;
    note_memory(*rank);
  }
  return {};
}

// An event of its own at the end of the stream.
Result<Token> CudaBackend::record(Rank& rank, StreamHandle stream) {
  const Result<EventHandle> event = start_event(rank, stream);
  if (!event) return tl::unexpected(event.error());
  TokenState state;
  state.event = *event;
  state.thread = rank.local().thread;
  state.stream = stream;
  tokens_.push_back(std::move(state));
  return Token{tokens_.size()};
}

Result<EventHandle> CudaBackend::start_event(Rank& rank, StreamHandle stream) {
  PL_TRY(rank.local().device.use());
  const Result<EventHandle> event = rank.events.take();
  if (!event) return event;
  PL_CUDA(*rank.local().device.libraries, cudaEventRecord, *event, stream);
  return event;
}

// Where the instance of a use lies; one that is written for the first time gets a block.
Result<std::byte*> CudaBackend::memory_for(Rank& rank, const sim::Use& use, bool writes) {
  const SlotClass& row = program().slots[use.slot_class];
  if (row.persistent) return rank.persistent.at(row.name).memory.get();
  const std::optional<MemoryKind> kind = rank.served.kernels->memory(row);
  if (!kind) return nullptr;
  Rank::Instance& instance = rank.instances[use.instance];
  if (instance.has_block || instance.data != nullptr) return instance.data;
  if (rank.graphs) {
    const Result<std::byte*> own = own_block(rank, use);
    if (own) instance.data = *own;
    return own;
  }
  // A fragment may read what nobody wrote: it gets a block as well.
  const Result<MemoryPool::BlockId> block =
      rank.pool.take({*kind, row.bytes}, [this](Token token) { return done(token); });
  if (!block) return tl::unexpected(block.error());
  instance.block = *block;
  instance.has_block = true;
  instance.data = rank.pool.data(*block);
  static_cast<void>(writes);
  return instance.data;
}

void CudaBackend::used_by(Rank& rank, const sim::Use& use, Token token) {
  if (program().slots[use.slot_class].persistent) return;
  std::vector<Token>& uses = rank.instances[use.instance].uses;
  if (std::find(uses.begin(), uses.end(), token) == uses.end()) uses.push_back(token);
}

void CudaBackend::release(Rank& rank, std::uint16_t slot_class, int microbatch, std::uint32_t item) {
  const std::uint32_t number = rank.slots->instance(slot_class, microbatch);
  rank.slots->release(slot_class, microbatch, item);
  if (program().slots[slot_class].persistent) return;
  const auto found = rank.instances.find(number);
  if (found == rank.instances.end() || !found->second.has_block) return;
  rank.pool.give(found->second.block, std::move(found->second.uses));
  rank.instances.erase(found);
}

void CudaBackend::note_memory(Rank& rank) {
  if (!options_.record_memory) return;
  const Bytes live = rank.slots->live_bytes();
  if (live == rank.noted) return;
  rank.noted = live;
  // The host is ahead of the device, so a point has the time of the step's begin; its order is what counts.
  rank.memory.push_back({0, program().threads[rank.local().thread].rank, 0, live});
}

bool CudaBackend::done(Token token) { return poll(0, token).state == PollState::kDone; }

Poll CudaBackend::poll(std::uint32_t /*thread*/, Token token) {
  if (token == 0) return {};
  TokenState& state = tokens_[static_cast<std::size_t>(token - 1)];
  if (state.done) return {};
  Rank& rank = rank_of(state.thread);
  if (std::optional<Error> error = rank.served.kernels->error_so_far())
    return {PollState::kFailed, std::move(error->message)};
  if (state.captures) {
    const Result<bool> through = go_on(rank);
    if (!through) return {PollState::kFailed, through.error().message};
    // What waits here may have been moved meanwhile.
    tokens_[static_cast<std::size_t>(token - 1)].done = *through;
    return *through ? Poll{} : Poll{PollState::kPending, "a group that is being captured is not issued yet"};
  }
  if (state.graph != 0) {
    const Token end = graphs_[state.graph - 1].end;
    if (end == 0) return {PollState::kPending, "its graph is not launched yet"};
    Poll whole = poll(state.thread, end);
    state.done = whole.state == PollState::kDone;
    return whole;
  }
  if (state.on_stream != 0) {
    Poll group = poll(state.thread, state.on_stream);
    const bool still = tokens_[static_cast<std::size_t>(state.on_stream - 1)].deferred;
    state.done = group.state != PollState::kFailed && !still;
    return state.done ? Poll{} : group;
  }
  if (state.deferred) {
    Poll issued = transport_->issued(state.thread);
    if (issued.state != PollState::kDone) return issued;
    const Result<EventHandle> event = start_event(rank, state.stream);
    if (!event) return {PollState::kFailed, event.error().message};
    state.event = *event;
    state.deferred = false;
  }
  if (state.comm_call != 0) {
    Poll through = transport_->through(state.comm_call);
    state.done = through.state == PollState::kDone;
    return through;
  }
  if (state.event == nullptr) {
    while (!state.parts.empty()) {
      Poll part = poll(state.thread, state.parts.back());
      if (part.state != PollState::kDone) return part;
      state.parts.pop_back();
    }
    state.done = true;
    return {};
  }
  const Libraries& on = *rank.local().device.libraries;
  const int code = on.cuda.cudaEventQuery(state.event);
  if (code == kCudaErrorNotReady) return {PollState::kPending, {}};
  if (const Status status = cuda_status(on, code, "cudaEventQuery"); !status)
    return {PollState::kFailed, status.error().message};
  state.done = true;
  return {};
}

std::size_t CudaBackend::completed() {
  std::uint32_t pending = 0;  // a graph: that of its other operations is not asked for again
  for (Operation& operation : operations_) {
    if (operation.done) continue;
    const std::uint32_t graph = tokens_[static_cast<std::size_t>(operation.end - 1)].graph;
    if (graph != 0 && graph == pending) continue;
    if (!done(operation.end)) {
      pending = graph;
      continue;
    }
    operation.done = true;
    ++completed_;
    if (options_.activity != nullptr)
      options_.activity->completed(static_cast<std::size_t>(&operation - operations_.data()));
  }
  if (options_.activity != nullptr) look_at_starts();
  return completed_;
}

// Of each stream the first operation that is not through may have started.
void CudaBackend::look_at_starts() {
  std::set<int> seen;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    Operation& operation = operations_[i];
    if (operation.done || !seen.insert(operation.stream).second) continue;
    if (operation.started || operation.start == nullptr) continue;
    // Events in a graph are still those of the launch before.
    if (tokens_[static_cast<std::size_t>(operation.end - 1)].graph != 0) continue;
    const Libraries& on = *rank_of(operation.thread).local().device.libraries;
    operation.started = on.cuda.cudaEventQuery(operation.start) == kCudaSuccess;
    if (operation.started) options_.activity->started(i);
  }
}

std::optional<Error> CudaBackend::kernel_error() {
  for (const auto& rank : ranks_) {
    if (std::optional<Error> error = rank->served.kernels->error_so_far()) return error;
  }
  return std::nullopt;
}

bool CudaBackend::drained() {
  for (const auto& rank : ranks_) {
    for (const auto& [row, stream] : rank->streams) {
      const int code = rank->local().device.libraries->cuda.cudaStreamQuery(stream.get());
      if (code == kCudaErrorNotReady) return false;
    }
  }
  return true;
}

}  // namespace plumbline::cuda
