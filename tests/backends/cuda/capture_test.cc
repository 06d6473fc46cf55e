// Captures of the double of CUDA by themselves: what CUDA refuses, and what a launch does.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "tests/backends/cuda/doubles.h"

namespace plumbline::cuda {
namespace {

class DoubleOfCapture : public ::testing::Test {
 protected:
  void SetUp() override {
    on = &doubles(1);
    cuda = &on->libraries->cuda;
    cuda->cudaSetDevice(0);
    for (StreamHandle& stream : streams)
      ASSERT_EQ(cuda->cudaStreamCreateWithFlags(&stream, kStreamNonBlocking), 0);
    for (EventHandle& event : events) ASSERT_EQ(cuda->cudaEventCreateWithFlags(&event, kEventDefault), 0);
  }
  int begin(StreamHandle stream, int mode = kCaptureModeThreadLocal) {
    return cuda->cudaStreamBeginCapture(stream, mode);
  }
  int end(StreamHandle stream) {
    graph = reinterpret_cast<GraphHandle>(1);
    return cuda->cudaStreamEndCapture(stream, &graph);
  }
  int work(StreamHandle stream) { return cuda->cudaLaunchHostFunc(stream, &count, &runs); }
  int record(EventHandle event, StreamHandle stream) { return cuda->cudaEventRecord(event, stream); }
  int wait(StreamHandle stream, EventHandle event) { return cuda->cudaStreamWaitEvent(stream, event, 0); }
  static void count(void* runs) { ++*static_cast<int*>(runs); }

  const Doubles* on = nullptr;
  const CudaApi* cuda = nullptr;
  std::array<StreamHandle, 3> streams{};
  std::array<EventHandle, 4> events{};
  GraphHandle graph = nullptr;
  int runs = 0;
};

TEST_F(DoubleOfCapture, RunsWithEveryLaunchAndNotBefore) {
  EXPECT_EQ(begin(streams[0]), 0);
  EXPECT_EQ(work(streams[0]), 0);
  EXPECT_EQ(end(streams[0]), 0);
  on->run();
  EXPECT_EQ(runs, 0);
  GraphExecHandle launchable = nullptr;
  ASSERT_EQ(cuda->cudaGraphInstantiateWithFlags(&launchable, graph, 0), 0);
  EXPECT_EQ(cuda->cudaGraphDestroy(graph), 0);
  EXPECT_NE(cuda->cudaGraphDestroy(graph), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cuda->cudaGraphLaunch(launchable, streams[1]), 0);
  EXPECT_EQ(runs, 0);
  on->run();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(cuda->cudaGraphExecDestroy(launchable), 0);
  EXPECT_EQ(cuda->cudaGraphLaunch(launchable, streams[1]), kCudaErrorInvalidValue);
}

TEST_F(DoubleOfCapture, StreamsJoinByEventsAndHaveToBeJoined) {
  ASSERT_EQ(begin(streams[0]), 0);
  ASSERT_EQ(record(events[0], streams[0]), 0);
  EXPECT_EQ(wait(streams[1], events[0]), 0);
  EXPECT_EQ(work(streams[1]), 0);
  EXPECT_EQ(end(streams[1]), kCudaErrorCaptureUnmatched);
  EXPECT_EQ(end(streams[0]), kCudaErrorCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  ASSERT_EQ(begin(streams[0]), 0);
  ASSERT_EQ(record(events[0], streams[0]), 0);
  EXPECT_EQ(wait(streams[1], events[0]), 0);
  EXPECT_EQ(work(streams[1]), 0);
  EXPECT_EQ(record(events[1], streams[1]), 0);
  EXPECT_EQ(wait(streams[0], events[1]), 0);
  EXPECT_EQ(end(streams[0]), 0);
  EXPECT_NE(graph, nullptr);
  EXPECT_NE(end(streams[0]), 0);
  on->run();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(work(streams[1]), 0);  // out of the capture
  on->run();
  EXPECT_EQ(runs, 1);
}

TEST_F(DoubleOfCapture, WhatIsOutsideCannotBeWaitedForInside) {
  ASSERT_EQ(record(events[0], streams[1]), 0);
  ASSERT_EQ(begin(streams[0]), 0);
  EXPECT_EQ(wait(streams[0], events[3]), 0);  // never recorded
  EXPECT_EQ(wait(streams[0], events[0]), kCudaErrorCaptureIsolation);
  EXPECT_EQ(work(streams[0]), kCudaErrorCaptureInvalidated);
  EXPECT_EQ(record(events[1], streams[0]), kCudaErrorCaptureInvalidated);
  EXPECT_EQ(end(streams[0]), kCudaErrorCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(work(streams[0]), 0);
}

TEST_F(DoubleOfCapture, TwoCapturesDoNotMerge) {
  ASSERT_EQ(begin(streams[0]), 0);
  ASSERT_EQ(begin(streams[1]), 0);
  EXPECT_NE(begin(streams[1]), 0);
  ASSERT_EQ(record(events[0], streams[0]), 0);
  EXPECT_EQ(wait(streams[1], events[0]), kCudaErrorCaptureMerge);
  EXPECT_EQ(end(streams[0]), kCudaErrorCaptureInvalidated);
  EXPECT_EQ(end(streams[1]), kCudaErrorCaptureInvalidated);
}

TEST_F(DoubleOfCapture, CapturedEventsAreNobodysOutside) {
  ASSERT_EQ(begin(streams[0]), 0);
  ASSERT_EQ(record(events[0], streams[0]), 0);
  EXPECT_EQ(cuda->cudaEventQuery(events[0]), kCudaErrorCapturedEvent);
  ASSERT_EQ(end(streams[0]), 0);
  EXPECT_EQ(cuda->cudaEventQuery(events[0]), kCudaErrorCapturedEvent);
  EXPECT_EQ(wait(streams[1], events[0]), kCudaErrorCapturedEvent);
  ASSERT_EQ(record(events[0], streams[1]), 0);
  EXPECT_EQ(cuda->cudaEventQuery(events[0]), kCudaErrorNotReady);
}

TEST_F(DoubleOfCapture, CallsThatMayWaitForTheDeviceEndAllCapturesButRelaxedOnes) {
  ASSERT_EQ(record(events[0], streams[2]), 0);
  void* block = nullptr;
  ASSERT_EQ(begin(streams[0], kCaptureModeRelaxed), 0);
  EXPECT_EQ(cuda->cudaMalloc(&block, 8), 0);
  EXPECT_EQ(cuda->cudaEventQuery(events[0]), kCudaErrorNotReady);
  EXPECT_EQ(cuda->cudaStreamQuery(streams[0]), kCudaErrorCaptureUnsupported);
  EXPECT_EQ(end(streams[0]), kCudaErrorCaptureInvalidated);
  ASSERT_EQ(begin(streams[0]), 0);
  EXPECT_EQ(cuda->cudaMalloc(&block, 8), kCudaErrorCaptureUnsupported);
  EXPECT_EQ(end(streams[0]), kCudaErrorCaptureInvalidated);
  ASSERT_EQ(begin(streams[0]), 0);
  EXPECT_EQ(cuda->cudaEventQuery(events[0]), kCudaErrorCaptureUnsupported);
  EXPECT_EQ(end(streams[0]), kCudaErrorCaptureInvalidated);
}

TEST_F(DoubleOfCapture, ExternalEventsAreRecordedByEveryLaunch) {
  EXPECT_EQ(cuda->cudaEventRecordWithFlags(events[0], streams[0], kEventRecordExternal),
            kCudaErrorInvalidValue);
  ASSERT_EQ(begin(streams[0]), 0);
  ASSERT_EQ(cuda->cudaEventRecordWithFlags(events[0], streams[0], kEventRecordExternal), 0);
  on->next_takes(5000000);
  ASSERT_EQ(work(streams[0]), 0);
  ASSERT_EQ(cuda->cudaEventRecordWithFlags(events[1], streams[0], kEventRecordExternal), 0);
  ASSERT_EQ(end(streams[0]), 0);
  GraphExecHandle launchable = nullptr;
  ASSERT_EQ(cuda->cudaGraphInstantiateWithFlags(&launchable, graph, 0), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(record(events[2], streams[1]), 0);
    ASSERT_EQ(cuda->cudaGraphLaunch(launchable, streams[1]), 0);
    EXPECT_EQ(cuda->cudaEventQuery(events[1]), kCudaErrorNotReady);
    on->run();
    float took = 0;
    EXPECT_EQ(cuda->cudaEventElapsedTime(&took, events[0], events[1]), 0);
    EXPECT_FLOAT_EQ(took, 5.0f);
    EXPECT_EQ(cuda->cudaEventElapsedTime(&took, events[2], events[0]), 0);
    EXPECT_FLOAT_EQ(took, 0.0f);
  }
}

// N18, on a communicator of one rank.
TEST_F(DoubleOfCapture, AGroupIsCapturedOrItIsNot) {
  const NcclApi& nccl = on->libraries->nccl;
  UniqueId id;
  nccl.ncclGetUniqueId(&id);
  CommConfig config;
  config.blocking = 0;
  CommHandle comm = nullptr;
  ASSERT_EQ(nccl.ncclCommInitRankConfig(&comm, 1, id, 0, &config), kNcclInProgress);
  on->run();
  void* block = nullptr;
  ASSERT_EQ(cuda->cudaMalloc(&block, 64), 0);
  const auto pair = [&](StreamHandle first, StreamHandle second) {
    nccl.ncclGroupStart();
    nccl.ncclSend(block, 16, 7, 0, comm, first);
    nccl.ncclRecv(block, 16, 7, 0, comm, second);
    return nccl.ncclGroupEnd();
  };
  ASSERT_EQ(begin(streams[0]), 0);
  EXPECT_EQ(pair(streams[0], streams[1]), kNcclInvalidUsage);
  EXPECT_EQ(pair(streams[0], streams[0]), kNcclSuccess);
  EXPECT_EQ(pair(streams[1], streams[1]), kNcclSuccess);
  EXPECT_EQ(end(streams[0]), 0);
  on->run();
  EXPECT_EQ(on->incomplete(), 0);
}

}  // namespace
}  // namespace plumbline::cuda
