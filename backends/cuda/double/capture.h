// Captures: streams of the double of CUDA that are being captured, the graphs made of them, and what CUDA refuses
// meanwhile. Nothing is executed here: a launch gives the simulator's World one graph (World::graph) with the captured
// calls in it, so that its rules say what becomes of it (N18, N37).
//
// A stream is in at most one capture: the one it began, or that of an event which it waited for. A violation
// invalidates the capture: every call on its streams returns cudaErrorStreamCaptureInvalidated until
// cudaStreamEndCapture, which then gives no graph.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "backends/cuda/double/machine.h"

namespace plumbline::cuda {

// One captured call.
struct CapturedCall {
  enum class Kind { kKernel, kGroup, kRecord, kWait };
  Kind kind = Kind::kKernel;
  CUstream_st* stream = nullptr;
  unsigned row = 0;  // kKernel
  Machine::Work work;
  std::vector<GroupedCall> calls;  // kGroup
  std::size_t point = 0;           // kRecord; kWait: the point waited for
  CUevent_st* external = nullptr;  // kRecord: recorded again by every launch; null: an edge of the graph
};

}  // namespace plumbline::cuda

struct CUgraph_st {
  int device = 0;
  std::vector<plumbline::cuda::CapturedCall> calls;
  std::size_t points = 0;
  bool destroyed = false;
};
struct CUgraphExec_st {
  CUgraph_st graph;
  plumbline::Token last = 0;  // end of the last launch: launches of one graph follow one another
  bool destroyed = false;
};

namespace plumbline::cuda {

class Captures {
 public:
  // Codes are cudaError_t.
  int begin(CUstream_st* stream, int mode);
  int end(CUstream_st* stream, CUgraph_st** graph);
  int instantiate(CUgraphExec_st** made, const CUgraph_st* graph);
  bool valid(const CUgraph_st* graph) const;
  bool valid(const CUgraphExec_st* graph) const;

  // Work on a stream: success, or that its capture is invalid.
  int refuses(const CUstream_st* stream) const;
  // What may wait for a device, while a capture is under way in the process that forbids it (all modes but relaxed).
  int refuses_unsafe(const Process& process);
  int refuses_query(const CUstream_st* stream);

  // Calls on a stream that is captured.
  void kernel(CUstream_st* stream, unsigned row, Machine::Work what);
  void record(CUevent_st* event, CUstream_st* stream);
  int record_external(CUevent_st* event, CUstream_st* stream);
  // Whether the stream or the event is.
  bool concerns(const CUstream_st* stream, const CUevent_st* event) const {
    return stream->capture != 0 || event->capture != 0;
  }
  int wait(CUstream_st* stream, CUevent_st* event);
  static bool any(const std::vector<GroupedCall>& calls);
  int group(const std::vector<GroupedCall>& calls);  // an ncclResult_t

 private:
  using Known = std::map<const CUstream_st*, std::size_t>;  // by stream: how much of its work comes before
  struct Capture {
    CUstream_st* origin = nullptr;
    int mode = 0;
    bool invalid = false;
    CUgraph_st graph;
    std::map<CUstream_st*, Known> streams;  // those in the capture
    std::vector<Known> points;
  };
  Capture& of(const CUstream_st* stream) { return *captures_.at(stream->capture); }
  void work(Capture& capture, CUstream_st* stream);

  std::map<unsigned long long, std::unique_ptr<Capture>> captures_;
  unsigned long long next_ = 1;
  std::vector<std::unique_ptr<CUgraph_st>> graphs_;
  std::vector<std::unique_ptr<CUgraphExec_st>> launchable_;
};

}  // namespace plumbline::cuda
