#include "backends/cuda/double/capture.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/double/forward.h"

namespace plumbline::cuda {
namespace {

template <typename Known>
void merge(const Known& from, Known& into) {
  for (const auto& [stream, count] : from) into[stream] = std::max(into[stream], count);
}

}  // namespace

int Captures::begin(CUstream_st* stream, int mode) {
  if (mode < 0 || mode > kCaptureModeRelaxed || stream->capture != 0) return kCudaErrorInvalidValue;
  auto capture = std::make_unique<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->graph.device = stream->device;
  capture->streams[stream];
  stream->capture = next_;
  captures_[next_++] = std::move(capture);
  return kCudaSuccess;
}

int Captures::end(CUstream_st* stream, CUgraph_st** graph) {
  *graph = nullptr;
  if (stream->capture == 0) return kCudaErrorInvalidValue;
  if (of(stream).origin != stream) return kCudaErrorCaptureUnmatched;
  const std::unique_ptr<Capture> capture = std::move(captures_.extract(stream->capture).mapped());
  for (const auto& [own, known] : capture->streams) own->capture = 0;
  if (capture->invalid) return kCudaErrorCaptureInvalidated;
  Known& joined = capture->streams.at(stream);
  for (const auto& [own, known] : capture->streams) {
    const auto done = known.find(own);
    if (done != known.end() && done->second > joined[own]) return kCudaErrorCaptureUnjoined;
  }
  capture->graph.points = capture->points.size();
  graphs_.push_back(std::make_unique<CUgraph_st>(std::move(capture->graph)));
  *graph = graphs_.back().get();
  return kCudaSuccess;
}

int Captures::instantiate(CUgraphExec_st** made, const CUgraph_st* graph) {
  launchable_.push_back(std::make_unique<CUgraphExec_st>(CUgraphExec_st{*graph, 0, false}));
  *made = launchable_.back().get();
  return kCudaSuccess;
}

bool Captures::valid(const CUgraph_st* graph) const {
  return std::any_of(graphs_.begin(), graphs_.end(),
                     [&](const auto& known) { return known.get() == graph && !known->destroyed; });
}
bool Captures::valid(const CUgraphExec_st* graph) const {
  return std::any_of(launchable_.begin(), launchable_.end(),
                     [&](const auto& known) { return known.get() == graph && !known->destroyed; });
}

int Captures::refuses(const CUstream_st* stream) const {
  if (stream->capture == 0 || !captures_.at(stream->capture)->invalid) return kCudaSuccess;
  return kCudaErrorCaptureInvalidated;
}

int Captures::refuses_unsafe(const Process& process) {
  int code = kCudaSuccess;
  for (const auto& [id, capture] : captures_) {
    if (capture->mode == kCaptureModeRelaxed || capture->origin->owner != &process) continue;
    capture->invalid = true;
    code = kCudaErrorCaptureUnsupported;
  }
  return code;
}

int Captures::refuses_query(const CUstream_st* stream) {
  if (stream->capture == 0) return refuses_unsafe(*stream->owner);
  of(stream).invalid = true;
  return kCudaErrorCaptureUnsupported;
}

// The stream has one piece of work more.
void Captures::work(Capture& capture, CUstream_st* stream) { ++capture.streams.at(stream)[stream]; }

void Captures::kernel(CUstream_st* stream, unsigned row, Machine::Work what) {
  Capture& capture = of(stream);
  CapturedCall call;
  call.stream = stream;
  call.row = row;
  call.work = std::move(what);
  capture.graph.calls.push_back(std::move(call));
  work(capture, stream);
}

void Captures::record(CUevent_st* event, CUstream_st* stream) {
  Capture& capture = of(stream);
  event->capture = stream->capture;
  event->point = capture.points.size();
  capture.points.push_back(capture.streams.at(stream));
  CapturedCall call;
  call.kind = CapturedCall::Kind::kRecord;
  call.stream = stream;
  call.point = event->point;
  capture.graph.calls.push_back(std::move(call));
}

int Captures::record_external(CUevent_st* event, CUstream_st* stream) {
  if (stream->capture == 0) return kCudaErrorInvalidValue;
  record(event, stream);
  event->capture = 0;
  Capture& capture = of(stream);
  capture.graph.calls.back().external = event;
  work(capture, stream);
  return kCudaSuccess;
}

int Captures::wait(CUstream_st* stream, CUevent_st* event) {
  if (event->capture == 0) {
    if (!event->recorded) return kCudaSuccess;
    if (of(stream).invalid) return kCudaErrorCaptureInvalidated;
    of(stream).invalid = true;
    return kCudaErrorCaptureIsolation;
  }
  const auto found = captures_.find(event->capture);
  if (found == captures_.end()) return kCudaErrorCapturedEvent;  // its capture is over
  Capture& capture = *found->second;
  if (capture.invalid) return kCudaErrorCaptureInvalidated;
  if (stream->capture != 0 && stream->capture != event->capture) {
    capture.invalid = of(stream).invalid = true;
    return kCudaErrorCaptureMerge;
  }
  stream->capture = event->capture;
  merge(capture.points[event->point], capture.streams[stream]);
  CapturedCall call;
  call.kind = CapturedCall::Kind::kWait;
  call.stream = stream;
  call.point = event->point;
  capture.graph.calls.push_back(std::move(call));
  return kCudaSuccess;
}

bool Captures::any(const std::vector<GroupedCall>& calls) {
  return std::any_of(calls.begin(), calls.end(),
                     [](const GroupedCall& call) { return call.stream->capture != 0; });
}

// All streams of a group are in one capture (N18); where communicators differ in that, they are of no more use.
int Captures::group(const std::vector<GroupedCall>& calls) {
  const unsigned long long id = calls.front().stream->capture;
  const bool mixed = std::any_of(calls.begin(), calls.end(),
                                 [&](const GroupedCall& call) { return call.stream->capture != id; });
  if (mixed) {
    const bool several = std::any_of(
        calls.begin(), calls.end(), [&](const GroupedCall& call) { return call.comm != calls.front().comm; });
    for (const GroupedCall& call : calls)
      if (several) call.comm->error = kNcclInvalidUsage;
    return kNcclInvalidUsage;
  }
  Capture& capture = *captures_.at(id);
  if (capture.invalid) return kNcclUnhandledCudaError;
  // Its kernel is behind and ahead of all of its streams (N5).
  Known all;
  for (const GroupedCall& call : calls) {
    work(capture, call.stream);
    merge(capture.streams.at(call.stream), all);
  }
  for (const GroupedCall& call : calls) merge(all, capture.streams.at(call.stream));
  CapturedCall call;
  call.kind = CapturedCall::Kind::kGroup;
  call.stream = calls.front().stream;
  call.calls = calls;
  capture.graph.calls.push_back(std::move(call));
  return kNcclSuccess;
}

int Machine::launch(CUgraphExec_st* exec, CUstream_st* stream) {
  const auto thread = static_cast<std::uint32_t>(stream->device);
  static_cast<void>(world_.stream_wait(thread, stream->index, exec->last));
  static_cast<void>(world_.graph(thread, stream->index, true));
  std::vector<Token> points(exec->graph.points, 0);
  bool connected = true;
  for (const CapturedCall& captured : exec->graph.calls) {
    const int index = captured.stream->index;
    switch (captured.kind) {
      case CapturedCall::Kind::kKernel: {
        Call call;
        call.work = captured.work;
        launch(stream->device, index, captured.row, std::move(call));
        break;
      }
      case CapturedCall::Kind::kGroup: {
        std::vector<const GroupedCall*> calls;
        for (const GroupedCall& call : captured.calls) calls.push_back(&call);
        connected = group_of(stream->device, calls) == kNcclSuccess && connected;
        break;
      }
      case CapturedCall::Kind::kRecord: {
        const Token token = world_.point(thread, index);
        points[captured.point] = token;
        if (captured.external == nullptr) break;
        captured.external->recorded = true;
        captured.external->token = token;
        break;
      }
      case CapturedCall::Kind::kWait:
        static_cast<void>(world_.stream_wait(thread, index, points[captured.point]));
        break;
    }
  }
  static_cast<void>(world_.graph(thread, stream->index, false));
  exec->last = *world_.marker(thread, stream->index);
  // Connections are made when a group is captured; the double makes them at its first call on the World, and this is
  // too late for the rest of the graph.
  return connected ? kCudaSuccess : kCudaErrorNotSupported;
}

}  // namespace plumbline::cuda

using namespace plumbline::cuda;  // NOLINT: the functions below are C's

namespace {

constexpr int kLost = kCudaLost;

Machine& called() {
  ++machine().api_calls;
  return machine();
}

// Work on a stream of the current device.
bool takes_work(const Machine& at, const StreamHandle stream) {
  return at.valid(stream) && stream->device == at.caller->device;
}

}  // namespace

EXPORTED int cudaStreamBeginCapture(StreamHandle stream, int mode) {
  FORWARD(cudaStreamBeginCapture, stream, mode);
  if (!called().valid(stream)) return kCudaErrorInvalidHandle;
  return machine().captures->begin(stream, mode);
}
EXPORTED int cudaStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  FORWARD(cudaStreamEndCapture, stream, graph);
  if (!called().valid(stream)) return kCudaErrorInvalidHandle;
  return machine().captures->end(stream, graph);
}
EXPORTED int cudaEventRecordWithFlags(EventHandle event, StreamHandle stream, unsigned flags) {
  FORWARD(cudaEventRecordWithFlags, event, stream, flags);
  if (!takes_work(called(), stream) || !machine().valid(event)) return kCudaErrorInvalidHandle;
  if (const int code = machine().captures->refuses(stream); code != kCudaSuccess) return code;
  if (flags > kEventRecordExternal) return kCudaErrorInvalidValue;
  if (flags == kEventRecordExternal) return machine().captures->record_external(event, stream);
  machine().record(event, stream);
  return kCudaSuccess;
}
EXPORTED int cudaGraphInstantiateWithFlags(GraphExecHandle* made, GraphHandle graph,
                                           unsigned long long flags) {
  FORWARD(cudaGraphInstantiateWithFlags, made, graph, flags);
  if (!called().captures->valid(graph) || flags != 0) return kCudaErrorInvalidValue;
  return machine().captures->instantiate(made, graph);
}
EXPORTED int cudaGraphLaunch(GraphExecHandle graph, StreamHandle stream) {
  FORWARD(cudaGraphLaunch, graph, stream);
  if (!takes_work(called(), stream)) return kCudaErrorInvalidHandle;
  if (!machine().captures->valid(graph) || graph->graph.device != stream->device)
    return kCudaErrorInvalidValue;
  if (stream->capture != 0) return kCudaErrorNotSupported;  // as part of another graph
  return machine().launch(graph, stream);
}
EXPORTED int cudaGraphDestroy(GraphHandle graph) {
  FORWARD(cudaGraphDestroy, graph);
  if (!called().captures->valid(graph)) return kCudaErrorInvalidValue;
  graph->destroyed = true;
  graph->calls.clear();
  return kCudaSuccess;
}
EXPORTED int cudaGraphExecDestroy(GraphExecHandle graph) {
  FORWARD(cudaGraphExecDestroy, graph);
  if (!called().captures->valid(graph)) return kCudaErrorInvalidValue;
  graph->destroyed = true;
  graph->graph.calls.clear();
  return kCudaSuccess;
}
