// Graphs of a Program: what is noted while one is open, and what becomes of it at its end.
#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/backend_rank.h"

namespace plumbline::cuda {

Status CudaBackend::check_graphs() const {
  const bool graphs = program().extras.graphs;
  for (const auto& rank : ranks_) {
    rank->captured.clear();
    rank->open.reset();
    rank->capture.reset();
    rank->graphs = graphs;
    if (!graphs) continue;
    if (!transport_->can_be_captured()) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("CUDA graphs need the level nccl: at {} messages are told apart by counters, and a "
                      "replay would count as the capture did; leave --cuda-graphs off, or give "
                      "--cuda-level nccl",
                      transport_->level()));
    }
    if (!rank->served.kernels->can_be_captured()) {
      return fail(
          ErrorCode::kUnsupported,
          "CUDA graphs need stages on the host: on a device LibTorch's stashes are objects of the host, "
          "which a replay does not make anew; leave --cuda-graphs off, or give --compute host");
    }
  }
  return {};
}

// A block for every slot that the rank may write: the same one in each step.
Status CudaBackend::own_blocks(Rank& rank) {
  rank.blocks.clear();
  if (!rank.graphs) return {};
  const auto reserve = [&](std::uint16_t slot, int microbatch) -> Status {
    const SlotClass& row = program().slots[slot];
    const std::optional<MemoryKind> kind = rank.served.kernels->memory(row);
    if (row.persistent || !kind) return {};
    const auto [at, fresh] =
        rank.blocks.try_emplace({slot, row.per_microbatch ? microbatch : kNoMicrobatch, 0});
    if (!fresh) return {};
    Result<Memory> memory = Memory::allocate(rank.local().device, *kind, row.bytes);
    if (!memory) return tl::unexpected(memory.error());
    at->second = std::move(*memory);
    return {};
  };
  for (const Item item : program().thread_items(rank.local().thread)) {
    if (item_op(item) == ItemOp::kLaunch) {
      for (const std::uint16_t slot : program().kernels[item_ref(item)].writes)
        PL_TRY(reserve(slot, item_microbatch(item)));
    } else if (item_op(item) == ItemOp::kOp) {
      PL_TRY(reserve(program().endpoints[item_ref(item)].slot, item_microbatch(item)));
    }
  }
  return {};
}

// The block of a new instance. A slot that is written twice in a step has two.
Result<std::byte*> CudaBackend::own_block(Rank& rank, const sim::Use& use) {
  const SlotClass& row = program().slots[use.slot_class];
  const int microbatch = row.per_microbatch ? rank.slots->microbatch(use) : kNoMicrobatch;
  const int number = rank.written[{use.slot_class, microbatch}]++;
  Memory& block = rank.blocks[{use.slot_class, microbatch, number}];
  if (block.get() == nullptr) {
    Result<Memory> memory =
        Memory::allocate(rank.local().device, *rank.served.kernels->memory(row), row.bytes);
    if (!memory) return tl::unexpected(memory.error());
    block = std::move(*memory);
  }
  return block.get();
}

Token CudaBackend::add(Rank& rank, GraphCommand command) {
  Rank::OpenGraph& open = *rank.open;
  const bool operation =
      command.what == GraphCommand::What::kKernel || command.what == GraphCommand::What::kGroup;
  TokenState state;
  state.thread = rank.local().thread;
  state.stream = command.stream;
  state.graph = open.run;
  state.command = open.commands.size();
  tokens_.push_back(std::move(state));
  open.commands.push_back(std::move(command));
  open.operations.push_back(operation ? operations_.size() : Rank::kNone);  // the one that comes next
  return Token{tokens_.size()};
}

// A stream waits for something in a graph: inside of it that is an edge, outside it is for the whole graph.
Status CudaBackend::wait_for_graph(std::uint32_t thread, int stream, const TokenState& state) {
  Rank& rank = rank_of(thread);
  if (!rank.open || rank.open->run != state.graph)
    return stream_wait(thread, stream, graphs_[state.graph - 1].end);
  const StreamHandle waiting = rank.stream(stream);
  const std::size_t after = state.command;
  if (waiting != state.stream)
    add(rank, {.what = GraphCommand::What::kWait, .stream = waiting, .after = after});
  return {};
}

Result<Token> CudaBackend::graph(std::uint32_t thread, int stream, bool begin) {
  Rank& rank = rank_of(thread);
  if (!begin) return graph_end(rank);
  graphs_.push_back({thread, stream, 0});
  rank.open = Rank::OpenGraph{static_cast<std::uint32_t>(graphs_.size()), stream, {}, {}};
  return Token{0};
}

Result<Token> CudaBackend::graph_end(Rank& rank) {
  const Rank::OpenGraph& open = *rank.open;
  const StreamHandle stream = rank.stream(open.stream);
  const bool empty =
      std::none_of(open.commands.begin(), open.commands.end(), [](const GraphCommand& command) {
        return command.what != GraphCommand::What::kPoint && command.what != GraphCommand::What::kWait;
      });
  if (empty) {
    PL_TRY(launch_graph(rank, nullptr));
    return Token{0};
  }
  for (const auto& known : rank.captured) {
    if (!known->is(stream, open.commands)) continue;
    PL_TRY(launch_graph(rank, known.get()));
    return Token{0};
  }
  ++captures_;
  rank.capture = std::make_unique<GraphCapture>(
      GraphCapture::Place{rank.local(), rank.served.kernels, transport_, &program(), options_.record_events},
      rank.edges, stream, open.commands);
  const Result<bool> through = go_on(rank);
  if (!through) return tl::unexpected(through.error());
  if (*through) return Token{0};
  TokenState host;
  host.thread = rank.local().thread;
  host.captures = true;
  tokens_.push_back(std::move(host));
  return Token{tokens_.size()};
}

// The rank's capture; true: it is over, and the graph is launched.
Result<bool> CudaBackend::go_on(Rank& rank) {
  const Result<bool> through = rank.capture->advance();
  if (!through || !*through) return through;
  rank.captured.push_back(rank.capture->take());
  rank.capture.reset();
  PL_TRY(launch_graph(rank, rank.captured.back().get()));
  return true;
}

// Null: nothing is in it.
Status CudaBackend::launch_graph(Rank& rank, CapturedGraph* graph) {
  const Rank::OpenGraph open = std::move(*rank.open);
  rank.open.reset();
  if (graph != nullptr) PL_TRY(graph->launch());
  const Result<Token> end = record(rank, rank.stream(open.stream));
  if (!end) return tl::unexpected(end.error());
  graphs_[open.run - 1].end = *end;
  for (std::size_t i = 0; i < open.commands.size(); ++i) {
    if (open.operations[i] == Rank::kNone || graph == nullptr) continue;
    Operation& operation = operations_[open.operations[i]];
    std::tie(operation.start, operation.finish) = graph->times(i);
  }
  return {};
}

}  // namespace plumbline::cuda
