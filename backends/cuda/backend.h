// CudaBackend: a Program's ranks on CUDA streams. Nothing blocks: every call enqueues, and tokens are events that are
// queried. One process serves one rank or several - several devices, or loopback on one - and one thread drives all.
//
// A Program's stream becomes one CUDA stream a rank. A group becomes one call of the transport on its stream;
// kAfterCompute and the interpreter's waits become cudaStreamWaitEvent. Slots follow the simulator's rules in host
// order (sim/slots.h: instances, live bytes, uses of what is not there), their memory comes from a pool.
//
// Times are CUDA events around every kernel and group, measured against one event at the start of the step; an
// operation of a group has the times of its group. Ranges for profilers carry the Action's name.
//
// Graphs (kGraph) are captured once and then launched (graph.h). A token of something in a graph is done when the whole
// graph is, and so is what waits for it from outside; a wait inside for something outside holds the graph's launch, as
// it does in the simulator (N18). Slots then have a block each, since a replay works on the same addresses; the blocks
// and graphs live until another Program comes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/device.h"
#include "backends/cuda/graph.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/memory_pool.h"
#include "backends/cuda/step_activity.h"
#include "backends/cuda/transport.h"
#include "engine/runtime/backend.h"
#include "engine/runtime/run_record.h"
#include "sim/findings.h"
#include "sim/slots.h"

namespace plumbline::cuda {

struct CudaOptions {
  bool record_events = true;
  bool record_memory = true;
  bool ranges = true;                // NVTX, where it is found
  bool clear_slots = true;           // what a kernel writes begins as zeros, as in the simulator
  StepActivity* activity = nullptr;  // told what happens, where one rank is served; outlives the backend
};

// A rank that this process serves.
struct ServedRank {
  LocalRank local;
  StageKernels* kernels = nullptr;  // not owned
};

class CudaBackend final : public Backend {
 public:
  // `transport` outlives this, and serves the same ranks.
  CudaBackend(std::vector<ServedRank> ranks, Transport& transport, CudaOptions options);
  ~CudaBackend() override;

  // Streams, persistent slots and blocks for the Program; begins to make communicators. Programs with several host
  // threads a rank are refused, and so are graphs where kernels or the transport cannot be captured.
  Status set_program(const LinkedProgram& linked);

  // Backend. Threads are those of the served ranks.
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
  Poll poll(std::uint32_t thread, Token token) override;

  // Driver
  const std::vector<std::uint32_t>& threads() const { return served_; }
  Transport& transport() { return *transport_; }
  // How often something was captured so far.
  std::size_t captures() const { return captures_; }
  // How many operations of the step are complete, looked at anew: a measure of progress.
  std::size_t completed();
  bool all_complete() { return completed() == operations_.size(); }
  // Of a kernel that has run meanwhile; the first one stays.
  std::optional<Error> kernel_error();
  // Everything that is on the streams is through, whatever became of it.
  bool drained();
  // After the last operation: times, events and memory points in the record's order; findings of the slots.
  Result<std::vector<Finding>> end_step(int step, bool was_completed, Nanoseconds begin, RunRecord& record);

 private:
  struct Rank;
  struct TokenState {
    EventHandle event = nullptr;  // null: a set of others, or not on the stream yet
    std::uint32_t thread = 0;
    bool done = false;
    bool deferred = false;  // its group is not on the stream yet
    StreamHandle stream = nullptr;
    std::uint64_t comm_call = 0;  // a call on a communicator
    Token on_stream = 0;          // done when that token's group is on its stream
    std::vector<Token> parts;
    std::uint32_t graph = 0;  // of the step, from 1 on: it is in that one
    std::size_t command = 0;  // of that graph
    bool captures = false;    // done when its rank's capture is, and the graph is launched
  };
  // A graph of the step.
  struct GraphRun {
    std::uint32_t thread = 0;
    int stream = 0;
    Token end = 0;  // 0: it is not launched yet
  };
  // A kernel or a group, for the record.
  struct Operation {
    std::uint32_t thread = 0;
    std::uint32_t first_item = 0, count = 1;
    int stream = 0;
    EventHandle start = nullptr;
    Token end = 0;
    bool started = false, done = false;  // `started` is looked at for the activity alone
    EventHandle finish = nullptr;        // of one in a graph; null: the end's own event
  };

  const Program& program() const { return *linked_->program; }
  Rank& rank_of(std::uint32_t thread) { return *ranks_[index_[thread]]; }
  Status prepare(Rank& rank);
  Result<Token> record(Rank& rank, StreamHandle stream);
  Result<EventHandle> start_event(Rank& rank, StreamHandle stream);
  Result<std::byte*> memory_for(Rank& rank, const sim::Use& use, bool writes);
  void used_by(Rank& rank, const sim::Use& use, Token token);
  void release(Rank& rank, std::uint16_t slot_class, int microbatch, std::uint32_t item);
  void note_memory(Rank& rank);
  bool done(Token token);

  // backend_graph.cc
  Status check_graphs() const;
  Token add(Rank& rank, GraphCommand command);
  Status wait_for_graph(std::uint32_t thread, int stream, const TokenState& state);
  Result<Token> graph_end(Rank& rank);
  Result<bool> go_on(Rank& rank);
  Status launch_graph(Rank& rank, CapturedGraph* graph);
  Result<std::byte*> own_block(Rank& rank, const sim::Use& use);
  Status own_blocks(Rank& rank);
  Result<std::vector<TransportOp>> operations_of(Rank& rank, const GroupCall& call,
                                                 std::vector<sim::Use>& uses);
  std::vector<std::uint32_t> executed_order(const Operation& operation) const;
  void keep(const Operation& operation);
  void look_at_starts();
  struct Range;

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::uint32_t> served_;
  std::vector<std::size_t> index_;  // by thread
  Transport* transport_;
  CudaOptions options_;
  const LinkedProgram* linked_ = nullptr;
  std::vector<TokenState> tokens_;  // token - 1
  std::vector<Operation> operations_;
  std::vector<GraphRun> graphs_;
  std::size_t completed_ = 0;
  std::size_t captures_ = 0;
  sim::FindingLog log_;
};

}  // namespace plumbline::cuda
