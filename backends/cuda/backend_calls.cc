// What a step's host calls become on streams, and what the record gets of them.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/backend_rank.h"
#include "engine/runtime/reduce.h"

namespace plumbline::cuda {
namespace {

constexpr std::size_t kVariableBytes = 8;

bool in(const RowList& list, std::uint16_t slot) {
  return std::find(list.begin(), list.end(), slot) != list.end();
}

}  // namespace

// A range for profilers, around the calls that enqueue something.
struct CudaBackend::Range {
  Range(const NvtxApi& api, bool wanted, const Program& program, plumbline::Rank rank, Item item)
      : api_(wanted && api.nvtxRangePushA != nullptr ? &api : nullptr) {
    if (api_ != nullptr) api_->nvtxRangePushA(describe_item(program, rank, item).c_str());
  }
  ~Range() {
    if (api_ != nullptr) api_->nvtxRangePop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const NvtxApi* api_;
};

Result<Issued> CudaBackend::launch(std::uint32_t thread, std::uint32_t item_index, Item item) {
  Rank& rank = rank_of(thread);
  const Libraries& on = *rank.local().device.libraries;
  const plumbline::Rank number = program().threads[thread].rank;
  const Range range(on.nvtx, options_.ranges, program(), number, item);
  const Kernel& kernel = program().kernels[item_ref(item)];
  const int microbatch = item_microbatch(item);
  sim::Slots& slots = *rank.slots;
  std::vector<sim::Use> uses;
  for (const std::uint16_t slot : kernel.reads) {
    uses.push_back(in(kernel.writes, slot) ? slots.update(slot, microbatch, item_index)
                                           : slots.read(slot, microbatch, item_index));
  }
  for (const std::uint16_t slot : kernel.frees) uses.push_back(slots.read(slot, microbatch, item_index));
  for (const std::uint16_t slot : kernel.writes) {
    if (!in(kernel.reads, slot)) uses.push_back(slots.write(slot, microbatch, item_index));
  }
  PL_TRY(rank.local().device.use());
  const StreamHandle stream = rank.stream(item_stream(item));
  std::vector<std::pair<SlotRef, SlotMemory>> memory;
  for (const sim::Use& use : uses) {
    const SlotClass& row = program().slots[use.slot_class];
    const bool fresh = use.access == sim::Access::kWrite && !row.persistent;
    const Result<std::byte*> data = memory_for(rank, use, fresh);
    if (!data) return tl::unexpected(data.error());
    if (fresh && options_.clear_slots && *data != nullptr) {
      if (rank.open) {
        add(rank, {.what = GraphCommand::What::kClear, .stream = stream, .data = *data, .bytes = row.bytes});
      } else {
        PL_CUDA(on, cudaMemsetAsync, *data, 0, static_cast<std::size_t>(row.bytes), stream);
      }
    }
    memory.push_back(
        {{use.slot_class, row.per_microbatch ? microbatch : kNoMicrobatch}, {*data, row.bytes, row.dtype}});
  }
  note_memory(rank);
  Operation operation{thread, item_index, 1, item_stream(item)};
  if (rank.open) {
    operation.end = add(rank, {.what = GraphCommand::What::kKernel,
                               .stream = stream,
                               .item = item_index,
                               .slots = std::move(memory)});
  } else {
    if (options_.record_events) {
      const Result<EventHandle> start = start_event(rank, stream);
      if (!start) return tl::unexpected(start.error());
      operation.start = *start;
    }
    PL_TRY(rank.served.kernels->launch({&program(), number, item_ref(item), microbatch}, memory, stream));
    const Result<Token> end = record(rank, stream);
    if (!end) return tl::unexpected(end.error());
    operation.end = *end;
    for (const sim::Use& use : uses) used_by(rank, use, *end);
  }
  keep(operation);
  for (const std::uint16_t slot : kernel.frees) release(rank, slot, microbatch, item_index);
  note_memory(rank);
  return Issued{0, operation.end};
}

// The group's operations with their memory, in call order; collectives of no bytes are dropped (N60).
Result<std::vector<TransportOp>> CudaBackend::operations_of(Rank& rank, const GroupCall& call,
                                                            std::vector<sim::Use>& uses) {
  sim::Slots& slots = *rank.slots;
  std::vector<TransportOp> ops;
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const Item item = call.entries[i];
    const Endpoint& endpoint = program().endpoints[item_ref(item)];
    if (!is_p2p(endpoint.kind) && endpoint.bytes == 0) continue;
    const LinkedEndpoint& linked = linked_->at(call.thread, item_ref(item));
    const std::uint32_t index = call.first_item + static_cast<std::uint32_t>(i);
    const int microbatch = item_microbatch(item);
    const auto members = static_cast<Bytes>(
        linked_->communicators[static_cast<std::size_t>(linked.communicator)].members.size());
    const bool shares =
        endpoint.kind == EndpointKind::kAllGather || endpoint.kind == EndpointKind::kReduceScatter;
    if (endpoint.bytes % ((shares ? members : 1) * dtype_bytes(endpoint.dtype)) != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} has {} bytes of {}, which {} members cannot share evenly", endpoint.name,
                              endpoint.bytes, dtype_name(endpoint.dtype), members));
    }
    sim::Use use;
    if (endpoint.kind == EndpointKind::kSend) {
      use = slots.read(endpoint.slot, microbatch, index);
    } else if (endpoint.kind == EndpointKind::kRecv ||
               (endpoint.kind == EndpointKind::kBroadcast && !slots.live(endpoint.slot, microbatch))) {
      use = slots.write(endpoint.slot, microbatch, index);
    } else {
      use = slots.update(endpoint.slot, microbatch, index);
    }
    const Result<std::byte*> data = memory_for(rank, use, use.access == sim::Access::kWrite);
    if (!data) return tl::unexpected(data.error());
    uses.push_back(use);
    ops.push_back({endpoint.kind, linked.communicator, linked.position, linked.peer_position,
                   *data + endpoint.offset, endpoint.bytes, endpoint.dtype, endpoint.reduce});
  }
  return ops;
}

Result<Issued> CudaBackend::group(const GroupCall& call) {
  Rank& rank = rank_of(call.thread);
  const Range range(rank.local().device.libraries->nvtx, options_.ranges, program(),
                    program().threads[call.thread].rank, call.entries.front());
  std::vector<sim::Use> uses;
  Result<std::vector<TransportOp>> ops = operations_of(rank, call, uses);
  if (!ops) return tl::unexpected(ops.error());
  note_memory(rank);
  Issued issued;
  const StreamHandle stream = rank.stream(call.stream);
  if (!ops->empty()) {
    if (call.after_compute && call.stream != kComputeStream) {
      const Result<Token> compute = marker(call.thread, kComputeStream);
      if (!compute) return tl::unexpected(compute.error());
      PL_TRY(stream_wait(call.thread, call.stream, *compute));
    }
    Operation operation{call.thread, call.first_item, static_cast<std::uint32_t>(call.entries.size()),
                        call.stream};
    if (options_.record_events && !rank.open) {
      const Result<EventHandle> start = start_event(rank, stream);
      if (!start) return tl::unexpected(start.error());
      operation.start = *start;
    }
    Result<bool> now = true;
    if (!rank.open) now = transport_->enqueue({call.thread, stream, std::move(*ops)});
    if (!now) return tl::unexpected(now.error());
    if (rank.open) {
      issued.done = add(rank, {.what = GraphCommand::What::kGroup,
                               .stream = stream,
                               .item = call.first_item,
                               .ops = std::move(*ops)});
    } else if (*now) {
      const Result<Token> end = record(rank, stream);
      if (!end) return tl::unexpected(end.error());
      issued.done = *end;
    } else {
      TokenState end;
      end.thread = call.thread;
      end.deferred = true;
      end.stream = stream;
      tokens_.push_back(std::move(end));
      issued.done = tokens_.size();
      // The host goes on once the group is on the stream: the same token, looked at for that alone.
      TokenState host;
      host.thread = call.thread;
      host.on_stream = issued.done;
      tokens_.push_back(std::move(host));
      issued.host = tokens_.size();
    }
    operation.end = issued.done;
    keep(operation);
    for (const sim::Use& use : uses)
      if (!rank.open) used_by(rank, use, issued.done);
  }
  for (std::size_t i = 0; i < call.entries.size(); ++i) {
    const Endpoint& endpoint = program().endpoints[item_ref(call.entries[i])];
    if (endpoint.free_after)
      release(rank, endpoint.slot, item_microbatch(call.entries[i]),
              call.first_item + static_cast<std::uint32_t>(i));
  }
  note_memory(rank);
  return issued;
}

Status CudaBackend::stream_wait(std::uint32_t thread, int stream, Token token) {
  if (token == 0) return {};
  const TokenState& state = tokens_[static_cast<std::size_t>(token - 1)];
  if (state.done) return {};
  if (state.graph != 0) return wait_for_graph(thread, stream, state);
  if (state.event == nullptr) {
    for (const Token part : state.parts) PL_TRY(stream_wait(thread, stream, part));
    return {};
  }
  Rank& rank = rank_of(thread);
  // Inside a graph: its capture cannot refer to what is outside, so that its launch waits.
  const StreamHandle waiting = rank.stream(rank.open ? rank.open->stream : stream);
  if (waiting == state.stream) return {};  // it is ahead on the same stream
  PL_CUDA(*rank.local().device.libraries, cudaStreamWaitEvent, waiting, state.event, 0);
  return {};
}

Result<Token> CudaBackend::marker(std::uint32_t thread, int stream) {
  Rank& rank = rank_of(thread);
  if (rank.open) return add(rank, {.what = GraphCommand::What::kPoint, .stream = rank.stream(stream)});
  if (stream >= 0) return record(rank, rank.stream(stream));
  TokenState all;
  all.thread = thread;
  for (const auto& [row, handle] : rank.streams) {
    const Result<Token> one = record(rank, handle.get());
    if (!one) return one;
    all.parts.push_back(*one);
  }
  tokens_.push_back(std::move(all));
  return Token{tokens_.size()};
}

Status CudaBackend::free(std::uint32_t thread, std::uint32_t item_index, SlotRef slot) {
  Rank& rank = rank_of(thread);
  release(rank, slot.slot_class, slot.microbatch, item_index);
  note_memory(rank);
  return {};
}

Result<Token> CudaBackend::read(std::uint32_t thread, std::uint32_t item_index, unsigned variable) {
  Rank& rank = rank_of(thread);
  const std::uint16_t slot = program().variables[variable].slot;
  const sim::Use use = rank.slots->read(slot, kNoMicrobatch, item_index);
  const Result<std::byte*> data = memory_for(rank, use, false);
  if (!data) return tl::unexpected(data.error());
  PL_TRY(rank.local().device.use());
  const StreamHandle compute = rank.stream(kComputeStream);
  PL_CUDA(*rank.local().device.libraries, cudaMemcpyAsync, rank.variables.get() + variable * kVariableBytes,
          *data, static_cast<std::size_t>(dtype_bytes(program().slots[slot].dtype)), kMemcpyDefault, compute);
  const Result<Token> token = record(rank, compute);
  if (token) used_by(rank, use, *token);
  return token;
}

Result<double> CudaBackend::value(std::uint32_t thread, unsigned variable) {
  const DType dtype = program().slots[program().variables[variable].slot].dtype;
  return first_element(dtype, rank_of(thread).variables.get() + variable * kVariableBytes);
}

Result<Issued> CudaBackend::comm(std::uint32_t thread, std::uint32_t /*item_index*/, Item item) {
  const CommCall& call = program().comm_calls[item_ref(item)];
  const Result<std::uint64_t> number =
      transport_->comm(thread, call, linked_->comm_calls[thread][item_ref(item)]);
  if (!number) return tl::unexpected(number.error());
  TokenState state;
  state.thread = thread;
  state.comm_call = *number;
  tokens_.push_back(std::move(state));
  const Token token{tokens_.size()};
  const bool returns = call.nonblocking && call.kind != CommCallKind::kReady;
  return Issued{returns ? 0 : token, token};
}

// The items of a kernel or group, as the device executes them: by communicator, collectives before messages (N15,
// N16), otherwise as called.
std::vector<std::uint32_t> CudaBackend::executed_order(const Operation& operation) const {
  std::vector<std::uint32_t> items;
  for (std::uint32_t i = 0; i < operation.count; ++i) {
    const Item item = program().items[operation.first_item + i];
    const bool op = item_op(item) == ItemOp::kOp;
    const Endpoint* endpoint = op ? &program().endpoints[item_ref(item)] : nullptr;
    if (op && !is_p2p(endpoint->kind) && endpoint->bytes == 0) continue;
    items.push_back(operation.first_item + i);
  }
  const auto place = [&](std::uint32_t index) {
    const unsigned row = item_ref(program().items[index]);
    return std::pair(linked_->at(operation.thread, row).communicator, is_p2p(program().endpoints[row].kind));
  };
  if (items.size() > 1) {
    std::stable_sort(items.begin(), items.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
  }
  return items;
}

void CudaBackend::keep(const Operation& operation) {
  operations_.push_back(operation);
  if (options_.activity == nullptr) return;
  if (item_op(program().items[operation.first_item]) == ItemOp::kLaunch)
    return options_.activity->add_kernel(operation.first_item);
  std::vector<EnqueuedOperation> group;
  for (const std::uint32_t index : executed_order(operation)) {
    const LinkedEndpoint& linked = linked_->at(operation.thread, item_ref(program().items[index]));
    EnqueuedOperation row;
    row.item = index;
    row.communicator = linked.communicator;
    row.position = linked.position;
    row.peer_position = linked.peer_position;
    group.push_back(row);
  }
  options_.activity->add_group(std::move(group));
}

Result<std::vector<Finding>> CudaBackend::end_step(int step, bool was_completed, Nanoseconds begin,
                                                   RunRecord& record) {
  const std::uint32_t base = label_base(record, program());
  for (const auto& rank : ranks_) {
    const std::uint32_t thread = rank->local().thread;
    if (was_completed) rank->slots->report_leaks();
    struct Row {
      RunEvent event;
      std::uint32_t item;
    };
    std::vector<Row> rows;
    const Libraries& on = *rank->local().device.libraries;
    for (const Operation& operation : operations_) {
      if (operation.thread != thread || operation.start == nullptr || !operation.done) continue;
      float start = 0;
      float end = 0;
      const EventHandle last = operation.finish != nullptr
                                   ? operation.finish
                                   : tokens_[static_cast<std::size_t>(operation.end - 1)].event;
      PL_CUDA(on, cudaEventElapsedTime, &start, rank->epoch, operation.start);
      PL_CUDA(on, cudaEventElapsedTime, &end, rank->epoch, last);
      for (const std::uint32_t index : executed_order(operation)) {
        const Item item = program().items[index];
        const bool kernel = item_op(item) == ItemOp::kLaunch;
        RunEvent event;
        event.step = step;
        event.rank = program().threads[thread].rank;
        event.label =
            base + item_ref(item) + (kernel ? 0 : static_cast<std::uint32_t>(program().kernels.size()));
        event.stream = static_cast<std::uint16_t>(operation.stream);
        event.microbatch = item_microbatch(item) == kNoMicrobatch ? -1 : item_microbatch(item);
        if (!kernel && is_p2p(program().endpoints[item_ref(item)].kind))
          event.peer = linked_->at(thread, item_ref(item)).peer;
        event.start = event.ready = begin + static_cast<Nanoseconds>(static_cast<double>(start) * 1e6);
        event.end = begin + static_cast<Nanoseconds>(static_cast<double>(end) * 1e6);
        rows.push_back({event, operation.first_item});
      }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a.event.start != b.event.start ? a.event.start < b.event.start : a.item < b.item;
    });
    for (const Row& row : rows) record.events.push_back(row.event);
    for (MemoryPoint point : rank->memory) {
      point.step = step;
      point.time = begin;
      record.memory.push_back(point);
    }
  }
  return log_.take();
}

}  // namespace plumbline::cuda
