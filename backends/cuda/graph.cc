#include "backends/cuda/graph.h"

#include "engine/base/assert.h"

namespace plumbline::cuda {

CapturedGraph::CapturedGraph(Device device, StreamHandle stream, std::vector<GraphCommand> commands)
    : device_(std::move(device)),
      stream_(stream),
      commands_(std::move(commands)),
      events_(device_, true),
      times_(commands_.size(), {nullptr, nullptr}) {}

CapturedGraph::~CapturedGraph() {
  if (handle_ != nullptr) device_.libraries->cuda.cudaGraphExecDestroy(handle_);
}

Status CapturedGraph::launch() {
  PL_TRY(device_.use());
  PL_CUDA(*device_.libraries, cudaGraphLaunch, handle_, stream_);
  return {};
}

GraphCapture::GraphCapture(Place place, EventPool& edges, StreamHandle stream,
                           std::vector<GraphCommand> commands)
    : place_(std::move(place)),
      edges_(&edges),
      graph_(std::make_unique<CapturedGraph>(place_.local.device, stream, std::move(commands))),
      edge_of_(graph_->commands_.size(), nullptr),
      awaited_(graph_->commands_.size(), false) {
  for (const GraphCommand& command : graph_->commands_)
    if (command.what == GraphCommand::What::kWait) awaited_[command.after] = true;
}

// A capture that failed is ended, so that the stream can be used again.
GraphCapture::~GraphCapture() {
  if (!begun_ || ended_) return;
  GraphHandle graph = nullptr;
  libraries().cuda.cudaStreamEndCapture(graph_->stream_, &graph);
  if (graph != nullptr) libraries().cuda.cudaGraphDestroy(graph);
}

Result<EventHandle> GraphCapture::edge(StreamHandle from) {
  const Result<EventHandle> event = edges_->take();
  if (!event) return event;
  PL_CUDA(libraries(), cudaEventRecord, *event, from);
  return event;
}

Status GraphCapture::begin() {
  edges_->reset();
  PL_CUDA(libraries(), cudaStreamBeginCapture, graph_->stream_, kCaptureModeRelaxed);
  begun_ = true;
  const Result<EventHandle> start = edge(graph_->stream_);
  if (!start) return tl::unexpected(start.error());
  start_ = *start;
  return {};
}

Status GraphCapture::fork(StreamHandle stream) {
  if (stream == graph_->stream_ || !forked_.insert(stream).second) return {};
  PL_CUDA(libraries(), cudaStreamWaitEvent, stream, start_, 0);
  return {};
}

// The command's call; false: its group is not on the stream yet.
Result<bool> GraphCapture::issue(std::size_t index) {
  const GraphCommand& command = graph_->commands_[index];
  PL_TRY(fork(command.stream));
  const bool timed = place_.timed && (command.what == GraphCommand::What::kKernel ||
                                      command.what == GraphCommand::What::kGroup);
  if (timed) {
    for (EventHandle* event : {&graph_->times_[index].first, &graph_->times_[index].second}) {
      const Result<EventHandle> made = graph_->events_.take();
      if (!made) return tl::unexpected(made.error());
      *event = *made;
    }
    PL_CUDA(libraries(), cudaEventRecordWithFlags, graph_->times_[index].first, command.stream,
            kEventRecordExternal);
  }
  switch (command.what) {
    case GraphCommand::What::kClear:
      PL_CUDA(libraries(), cudaMemsetAsync, command.data, 0, static_cast<std::size_t>(command.bytes),
              command.stream);
      return true;
    case GraphCommand::What::kKernel: {
      const Item item = place_.program->items[command.item];
      const KernelCall call{place_.program, place_.program->threads[place_.local.thread].rank, item_ref(item),
                            item_microbatch(item)};
      Result<std::shared_ptr<void>> owner = place_.kernels->capture(call, command.slots, command.stream);
      if (!owner) return tl::unexpected(owner.error());
      graph_->owners_.push_back(std::move(*owner));
      return true;
    }
    case GraphCommand::What::kGroup:
      return place_.transport->enqueue({place_.local.thread, command.stream, command.ops});
    case GraphCommand::What::kPoint:
      return true;
    case GraphCommand::What::kWait:
      PL_ASSERT(edge_of_[command.after] != nullptr);
      PL_CUDA(libraries(), cudaStreamWaitEvent, command.stream, edge_of_[command.after], 0);
      return true;
  }
  return true;
}

// What follows a command that is on its stream.
Status GraphCapture::finish(std::size_t index) {
  const GraphCommand& command = graph_->commands_[index];
  if (const EventHandle end = graph_->times_[index].second; end != nullptr)
    PL_CUDA(libraries(), cudaEventRecordWithFlags, end, command.stream, kEventRecordExternal);
  if (!awaited_[index]) return {};
  const Result<EventHandle> event = edge(command.stream);
  if (!event) return tl::unexpected(event.error());
  edge_of_[index] = *event;
  return {};
}

Status GraphCapture::end() {
  for (const StreamHandle stream : forked_) {
    const Result<EventHandle> event = edge(stream);
    if (!event) return tl::unexpected(event.error());
    PL_CUDA(libraries(), cudaStreamWaitEvent, graph_->stream_, *event, 0);
  }
  GraphHandle graph = nullptr;
  ended_ = true;
  PL_CUDA(libraries(), cudaStreamEndCapture, graph_->stream_, &graph);
  const Status made =
      cuda_status(libraries(), libraries().cuda.cudaGraphInstantiateWithFlags(&graph_->handle_, graph, 0),
                  "cudaGraphInstantiateWithFlags");
  PL_CUDA(libraries(), cudaGraphDestroy, graph);
  return made;
}

Result<bool> GraphCapture::advance() {
  PL_TRY(place_.local.device.use());
  if (!begun_) PL_TRY(begin());
  while (next_ < graph_->commands_.size()) {
    if (under_way_) {
      const Poll issued = place_.transport->issued(place_.local.thread);
      if (issued.state == PollState::kPending) return false;
      if (issued.state == PollState::kFailed) return fail(ErrorCode::kState, issued.reason);
    } else {
      const Result<bool> there = issue(next_);
      if (!there) return there;
      under_way_ = !*there;
      if (under_way_) continue;
    }
    under_way_ = false;
    PL_TRY(finish(next_));
    ++next_;
  }
  PL_TRY(end());
  return true;
}

}  // namespace plumbline::cuda
