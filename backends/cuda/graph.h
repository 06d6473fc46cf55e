// CUDA graphs of one rank: the commands of a graph as they are called, their capture, and what is launched instead of
// them from then on.
//
// Commands are only noted while a graph is open. At its end they are compared, memory addresses included, with those of
// the graphs that were captured before: an equal one is launched, and that is the one host call of all of them; else
// they are captured first. So nothing is ever replayed that is not what was called, whatever arm a decision took.
//
// The capture's mode is relaxed: one thread drives all ranks, and while one of them is capturing, it asks for events
// of the others, which the other modes forbid. Every stream is forked from the launch stream where the capture begins,
// and joined with it at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "backends/cuda/device.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/transport.h"

namespace plumbline::cuda {

struct GraphCommand {
  enum class What : std::uint8_t {
    kClear,  // `data` to zeros
    kKernel,
    kGroup,
    kPoint,  // nothing: others may wait for what is ahead of it on its stream
    kWait,   // the stream waits for command `after`
  };
  What what = What::kPoint;
  StreamHandle stream = nullptr;
  std::uint32_t item = 0;  // kKernel, kGroup: index of the (first) item
  std::size_t after = 0;
  std::byte* data = nullptr;
  Bytes bytes = 0;
  std::vector<std::pair<SlotRef, SlotMemory>> slots;  // kKernel
  std::vector<TransportOp> ops;                       // kGroup

  bool operator==(const GraphCommand&) const = default;
};

// What can be launched.
class CapturedGraph {
 public:
  CapturedGraph(Device device, StreamHandle stream, std::vector<GraphCommand> commands);
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph();

  bool is(StreamHandle stream, const std::vector<GraphCommand>& commands) const {
    return stream_ == stream && commands_ == commands;
  }
  Status launch();
  // By command: recorded by each launch, before and behind kernels and groups; null: without times.
  std::pair<EventHandle, EventHandle> times(std::size_t command) const { return times_[command]; }

 private:
  friend class GraphCapture;
  Device device_;
  StreamHandle stream_;  // that it is launched on
  std::vector<GraphCommand> commands_;
  GraphExecHandle handle_ = nullptr;
  EventPool events_;
  std::vector<std::pair<EventHandle, EventHandle>> times_;
  std::vector<std::shared_ptr<void>> owners_;  // of what kernels need
};

// One capture, which stands still where a nonblocking communicator has a group not on its stream yet.
class GraphCapture {
 public:
  struct Place {
    LocalRank local;
    StageKernels* kernels = nullptr;
    Transport* transport = nullptr;
    const Program* program = nullptr;
    bool timed = false;
  };
  // `edges` lends events for the time of the capture. All of `place` and `edges` outlive this.
  GraphCapture(Place place, EventPool& edges, StreamHandle stream, std::vector<GraphCommand> commands);
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;
  ~GraphCapture();

  // False: again later. After true, take() has the graph.
  Result<bool> advance();
  std::unique_ptr<CapturedGraph> take() { return std::move(graph_); }

 private:
  const Libraries& libraries() const { return *place_.local.device.libraries; }
  Status begin();
  Status end();
  Status fork(StreamHandle stream);
  Result<bool> issue(std::size_t index);
  Status finish(std::size_t index);
  Result<EventHandle> edge(StreamHandle from);

  Place place_;
  EventPool* edges_;
  std::unique_ptr<CapturedGraph> graph_;
  std::vector<EventHandle> edge_of_;  // by command: what others wait for; null: nobody does
  std::vector<bool> awaited_;         // by command
  EventHandle start_ = nullptr;       // of all streams
  std::set<StreamHandle> forked_;
  std::size_t next_ = 0;
  bool begun_ = false, ended_ = false, under_way_ = false;
};

}  // namespace plumbline::cuda
