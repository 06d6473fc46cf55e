// The doubles of CUDA and NCCL by themselves: raw calls, as some program might make them, judged by the simulator's
// rules.
#include "tests/backends/cuda/doubles.h"

#include <array>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>

namespace plumbline::cuda {
namespace {

using ::testing::HasSubstr;

// Ranks 0..n-1 on devices of their own, with a stream, a buffer of 64 floats, and one communicator of all.
class World : public ::testing::Test {
 protected:
  void begin(int ranks, const std::string& config = "") {
    on = &doubles(ranks, config);
    cuda = &on->libraries->cuda;
    nccl = &on->libraries->nccl;
    for (int r = 0; r < ranks; ++r) {
      cuda->cudaSetDevice(r);
      streams.emplace_back();
      ASSERT_EQ(cuda->cudaStreamCreateWithFlags(&streams.back(), kStreamNonBlocking), 0);
      buffers.emplace_back();
      ASSERT_EQ(cuda->cudaMalloc(reinterpret_cast<void**>(&buffers.back()), 64 * sizeof(float)), 0);
      for (int i = 0; i < 64; ++i) buffers.back()[i] = static_cast<float>(100 * r + i);
    }
    comms = communicator(ranks);
  }

  std::vector<CommHandle> communicator(int ranks) {
    UniqueId id;
    nccl->ncclGetUniqueId(&id);
    CommConfig config;
    config.blocking = 0;
    std::vector<CommHandle> made(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      cuda->cudaSetDevice(r);
      EXPECT_EQ(nccl->ncclCommInitRankConfig(&made[static_cast<std::size_t>(r)], ranks, id, r, &config),
                kNcclInProgress);
    }
    on->run();
    for (CommHandle comm : made) EXPECT_EQ(state(comm), kNcclSuccess);
    return made;
  }

  int state(CommHandle comm) const {
    int error = -1;
    EXPECT_EQ(nccl->ncclCommGetAsyncError(comm, &error), 0);
    return error;
  }
  int send(int rank, int peer, std::size_t count = 64) {
    const auto r = static_cast<std::size_t>(rank);
    return nccl->ncclSend(buffers[r], count, 7, peer, comms[r], streams[r]);
  }
  int receive(int rank, int peer, std::size_t count = 64) {
    const auto r = static_cast<std::size_t>(rank);
    return nccl->ncclRecv(buffers[r], count, 7, peer, comms[r], streams[r]);
  }
  bool idle(int rank) const { return cuda->cudaStreamQuery(streams[static_cast<std::size_t>(rank)]) == 0; }

  const Doubles* on = nullptr;
  const CudaApi* cuda = nullptr;
  const NcclApi* nccl = nullptr;
  std::vector<StreamHandle> streams;
  std::vector<float*> buffers;
  std::vector<CommHandle> comms;
};

using DoubleOfNccl = World;

TEST_F(DoubleOfNccl, AMessageArrivesInAnyHostOrder) {
  begin(2);
  EXPECT_EQ(receive(1, 0), 0);
  EXPECT_EQ(send(0, 1), 0);
  EXPECT_FALSE(idle(1));
  on->run();
  EXPECT_TRUE(idle(0) && idle(1));
  EXPECT_EQ(buffers[1][5], 5.0f);
  EXPECT_TRUE(on->findings().empty());
}

TEST_F(DoubleOfNccl, AReceiveWithoutItsSendHangsWithoutAnError) {
  begin(2);
  EXPECT_EQ(receive(1, 0), 0);
  on->run();
  EXPECT_FALSE(idle(1));
  EXPECT_EQ(state(comms[1]), kNcclSuccess);  // N86
  const std::vector<Finding> findings = on->findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, FindingKind::kDeadlock);
  EXPECT_THAT(findings[0].why, HasSubstr("ank 0"));
  // What is aborted ends, with garbage.
  EXPECT_EQ(nccl->ncclCommAbort(comms[1]), 0);
  on->run();
  EXPECT_TRUE(idle(1));
  EXPECT_EQ(receive(1, 0), kNcclInvalidArgument);
}

TEST_F(DoubleOfNccl, TwoSendsFirstWaitForEachOtherUngroupedAndPassInGroups) {
  begin(2);
  for (int r : {0, 1}) {
    EXPECT_EQ(send(r, 1 - r), 0);
    EXPECT_EQ(receive(r, 1 - r), 0);
  }
  on->run();
  const std::vector<Finding> findings = on->findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].cause, "cycle");
  EXPECT_EQ(findings[0].cycle.size(), 4u);

  streams.clear(), buffers.clear();
  begin(2);
  for (int r : {0, 1}) {
    nccl->ncclGroupStart();
    EXPECT_EQ(send(r, 1 - r, 8), 0);
    EXPECT_EQ(nccl->ncclRecv(buffers[static_cast<std::size_t>(r)] + 32, 8, 7, 1 - r,
                             comms[static_cast<std::size_t>(r)], streams[static_cast<std::size_t>(r)]),
              0);
    EXPECT_EQ(nccl->ncclGroupEnd(), 0);
  }
  on->run();
  EXPECT_TRUE(idle(0) && idle(1));
  EXPECT_EQ(buffers[0][33], 101.0f);
  EXPECT_EQ(buffers[1][33], 1.0f);
}

TEST_F(DoubleOfNccl, AFailedOperationTakesItsGroupWithIt) {  // N10
  begin(2);
  nccl->ncclGroupStart();
  EXPECT_EQ(send(0, 1), 0);
  EXPECT_EQ(send(0, 7), kNcclInvalidArgument);  // N27
  EXPECT_EQ(nccl->ncclGroupEnd(), kNcclInvalidArgument);
  EXPECT_TRUE(idle(0));
  EXPECT_EQ(nccl->ncclGroupEnd(), kNcclInvalidUsage);  // N8
}

TEST_F(DoubleOfNccl, MemoryItDoesNotKnowIsRefused) {
  begin(2);
  std::array<float, 4> host{};
  EXPECT_EQ(nccl->ncclSend(host.data(), 4, 7, 1, comms[0], streams[0]), kNcclInvalidArgument);
  EXPECT_EQ(send(0, 1, 65), kNcclInvalidArgument);
}

TEST_F(DoubleOfNccl, SizesThatDifferAreAFinding) {  // N23
  begin(2);
  EXPECT_EQ(send(0, 1, 8), 0);
  EXPECT_EQ(receive(1, 0, 16), 0);
  on->run();
  const std::vector<Finding> findings = on->findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, FindingKind::kSizeMismatch);
}

TEST_F(DoubleOfNccl, CollectivesInAndOutOfPlace) {
  begin(3);
  for (std::size_t r = 0; r < 3; ++r)
    EXPECT_EQ(nccl->ncclAllReduce(buffers[r], buffers[r], 8, 7, 0, comms[r], streams[r]), 0);
  on->run();
  EXPECT_EQ(buffers[2][3], 309.0f);
  for (std::size_t r = 0; r < 3; ++r)
    EXPECT_EQ(nccl->ncclReduceScatter(buffers[r] + 8, buffers[r], 2, 7, 0, comms[r], streams[r]), 0);
  on->run();
  EXPECT_EQ(buffers[1][1], 300.0f + 3 * 11);  // elements 8 + 2 * rank + 1 of all
  EXPECT_EQ(buffers[1][11], 111.0f);          // what was sent stays as it was
  for (std::size_t r = 0; r < 3; ++r)
    EXPECT_EQ(nccl->ncclAllGather(buffers[r], buffers[r] + 16, 1, 7, comms[r], streams[r]), 0);
  on->run();
  EXPECT_EQ(buffers[0][17], buffers[1][0]);
  EXPECT_TRUE(on->findings().empty());
}

TEST_F(DoubleOfNccl, BuffersThatOverlapOtherwiseThanInPlaceAreAFinding) {  // N62
  begin(2);
  const auto findings = [&](auto call) {
    for (std::size_t r : {0u, 1u}) EXPECT_EQ(call(r), 0);
    on->run();
    std::vector<std::string> rules;
    for (const Finding& finding : on->findings()) rules.push_back(finding.rule);
    return rules;
  };
  const std::vector<std::string> twice = {"N62", "N62"};
  EXPECT_EQ(findings([&](std::size_t r) {
              return nccl->ncclAllReduce(buffers[r], buffers[r] + 1, 8, 7, 0, comms[r], streams[r]);
            }),
            twice);
  EXPECT_TRUE(findings([&](std::size_t r) {
                return nccl->ncclAllReduce(buffers[r], buffers[r] + 8, 8, 7, 0, comms[r], streams[r]);
              }).empty());
  EXPECT_TRUE(findings([&](std::size_t r) {
                return nccl->ncclAllGather(buffers[r] + r * 4, buffers[r], 4, 7, comms[r], streams[r]);
              }).empty());
  EXPECT_EQ(findings([&](std::size_t r) {
              return nccl->ncclAllGather(buffers[r] + 4 - r * 4, buffers[r], 4, 7, comms[r], streams[r]);
            }),
            twice);
  EXPECT_TRUE(findings([&](std::size_t r) {
                return nccl->ncclReduceScatter(buffers[r], buffers[r] + r * 4, 4, 7, 0, comms[r], streams[r]);
              }).empty());
}

TEST_F(DoubleOfNccl, OnlyTheRootsBuffersCount) {  // N64
  begin(2);
  for (std::size_t r : {0u, 1u})  // rank 0 is no root: what it would receive into stays, and may be null
    EXPECT_EQ(
        nccl->ncclReduce(buffers[r], r == 1 ? buffers[r] + 16 : nullptr, 8, 7, 0, 1, comms[r], streams[r]),
        0);
  on->run();
  EXPECT_EQ(buffers[1][16 + 3], 3.0f + 103.0f);
  EXPECT_EQ(buffers[0][16 + 3], 19.0f);
  for (std::size_t r : {0u, 1u})
    EXPECT_EQ(
        nccl->ncclBroadcast(r == 0 ? buffers[r] : nullptr, buffers[r] + 32, 8, 7, 0, comms[r], streams[r]),
        0);
  on->run();
  EXPECT_EQ(buffers[1][32 + 3], 3.0f);
  EXPECT_EQ(buffers[0][32 + 3], 3.0f);
  EXPECT_TRUE(on->findings().empty());
}

TEST_F(DoubleOfNccl, NothingIsAMessageButNoCollective) {  // N28, N60
  begin(2);
  EXPECT_EQ(nccl->ncclAllReduce(buffers[0], buffers[0], 0, 7, 0, comms[0], streams[0]), 0);
  on->run();
  EXPECT_TRUE(idle(0));
  EXPECT_EQ(send(0, 1, 0), 0);
  on->run();
  EXPECT_FALSE(idle(0));
  EXPECT_EQ(receive(1, 0, 0), 0);
  on->run();
  EXPECT_TRUE(idle(0) && idle(1));
}

TEST_F(DoubleOfNccl, TwoRanksOnOneDeviceAreRefused) {  // N71
  begin(2);
  UniqueId id;
  nccl->ncclGetUniqueId(&id);
  CommConfig config;
  config.blocking = 0;
  std::array<CommHandle, 2> made{};
  cuda->cudaSetDevice(0);
  for (int r : {0, 1}) nccl->ncclCommInitRankConfig(&made[static_cast<std::size_t>(r)], 2, id, r, &config);
  EXPECT_EQ(state(made[0]), kNcclInvalidUsage);
}

TEST_F(DoubleOfNccl, ASplitOrdersByKeyAndAShrinkLeavesRanksOut) {  // N73, N74
  begin(3);
  CommConfig config;
  config.blocking = 0;
  std::array<CommHandle, 3> made{};
  for (int r : {0, 1, 2}) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_EQ(nccl->ncclCommSplit(comms[i], r == 1 ? kSplitNoColor : 0, -r, &made[i], &config),
              kNcclInProgress);
    if (r == 0) EXPECT_EQ(send(0, 1), kNcclInvalidArgument);  // N79
  }
  on->run();
  EXPECT_EQ(made[1], nullptr);
  // Rank 2 has the lower key, and comes first.
  EXPECT_EQ(nccl->ncclSend(buffers[2], 4, 7, 1, made[2], streams[2]), 0);
  EXPECT_EQ(nccl->ncclRecv(buffers[0], 4, 7, 0, made[0], streams[0]), 0);
  on->run();
  EXPECT_EQ(buffers[0][1], 201.0f);
  int gone = 0;
  std::array<CommHandle, 3> left{};
  for (std::size_t r : {1u, 2u})
    EXPECT_EQ(nccl->ncclCommShrink(comms[r], &gone, 1, &left[r], nullptr, kShrinkDefault), kNcclInProgress);
  on->run();
  EXPECT_EQ(nccl->ncclSend(buffers[1], 4, 7, 1, left[1], streams[1]), 0);
  EXPECT_EQ(nccl->ncclRecv(buffers[2], 4, 7, 0, left[2], streams[2]), 0);
  on->run();
  EXPECT_EQ(buffers[2][1], 101.0f);
}

TEST_F(DoubleOfNccl, AnEndedProcessIsToldOfOnTheNetworkAndTheErrorStaysUntilTheAbort) {  // N82, N83
  begin(3, "[sim]\nranks_per_node = 1\n");
  EXPECT_EQ(receive(0, 1), 0);
  on->run();
  EXPECT_EQ(state(comms[0]), kNcclSuccess);
  EXPECT_EQ(on->end_process(7), -1);
  EXPECT_EQ(on->end_process(1), 0);
  EXPECT_EQ(state(comms[0]), kNcclRemoteError);
  EXPECT_EQ(state(comms[2]), kNcclSuccess);  // which has nothing to do with it
  EXPECT_EQ(send(0, 2), kNcclRemoteError);
  EXPECT_EQ(nccl->ncclCommDestroy(comms[0]), kNcclRemoteError);
  on->run();
  EXPECT_FALSE(idle(0));  // the kernel goes on
  EXPECT_EQ(nccl->ncclCommAbort(comms[0]), 0);
  on->run();
  EXPECT_TRUE(idle(0));
  const std::vector<Finding> findings = on->findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].code, "ncclRemoteError");
  EXPECT_EQ(findings[0].rule, "N83");
}

TEST_F(DoubleOfNccl, AnEndedProcessOfTheSameNodeIsAHang) {  // N83
  begin(2);
  EXPECT_EQ(receive(0, 1), 0);
  on->end_process(1);
  on->run();
  EXPECT_EQ(state(comms[0]), kNcclSuccess);
  EXPECT_FALSE(idle(0));
  const std::vector<Finding> findings = on->findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].cause, "process-ended");
}

TEST_F(DoubleOfNccl, FollowsTheModelItIsGiven) {
  begin(2, "[sim]\nsend = \"eager:1KiB\"\n");
  EXPECT_EQ(send(0, 1), 0);
  on->run();
  EXPECT_TRUE(idle(0));  // buffered
}

using DoubleOfCuda = World;

TEST_F(DoubleOfCuda, StreamsWaitForEventsAndForValues) {
  begin(2);
  StreamHandle other = nullptr;
  cuda->cudaSetDevice(0);
  cuda->cudaStreamCreateWithFlags(&other, kStreamNonBlocking);
  EventHandle event = nullptr;
  cuda->cudaEventCreateWithFlags(&event, kEventDefault);
  std::uint32_t* counter = nullptr;
  cuda->cudaHostAlloc(reinterpret_cast<void**>(&counter), sizeof *counter, kHostAllocPortable);
  *counter = 0;
  const auto address = static_cast<DeviceAddress>(reinterpret_cast<std::uintptr_t>(counter));
  std::vector<int> order;
  const auto note = [](void* argument) { static_cast<std::vector<int>*>(argument)->push_back(1); };
  const auto note_two = [](void* argument) { static_cast<std::vector<int>*>(argument)->push_back(2); };

  EXPECT_EQ(cuda->stream_wait_value32(streams[0], address, 1, kWaitValueGeq), 0);
  EXPECT_EQ(cuda->cudaLaunchHostFunc(streams[0], note, &order), 0);
  EXPECT_EQ(cuda->cudaEventRecord(event, streams[0]), 0);
  EXPECT_EQ(cuda->cudaStreamWaitEvent(other, event, 0), 0);
  EXPECT_EQ(cuda->cudaLaunchHostFunc(other, note_two, &order), 0);
  on->run();
  EXPECT_EQ(cuda->cudaEventQuery(event), kCudaErrorNotReady);
  EXPECT_TRUE(order.empty());
  EXPECT_GT(on->incomplete(), 0);
  // Another device writes the value.
  cuda->cudaSetDevice(1);
  EXPECT_EQ(cuda->stream_write_value32(streams[1], address, 1, kWriteValueDefault), 0);
  on->run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(cuda->cudaEventQuery(event), 0);
}

TEST_F(DoubleOfCuda, TimeIsVirtual) {
  begin(2);
  cuda->cudaSetDevice(0);
  std::array<EventHandle, 2> events{};
  for (EventHandle& event : events) cuda->cudaEventCreateWithFlags(&event, kEventDefault);
  cuda->cudaEventRecord(events[0], streams[0]);
  on->next_takes(1500000);
  cuda->cudaMemsetAsync(buffers[0], 0, 4, streams[0]);
  cuda->cudaEventRecord(events[1], streams[0]);
  on->run();
  float milliseconds = 0;
  EXPECT_EQ(cuda->cudaEventElapsedTime(&milliseconds, events[0], events[1]), 0);
  EXPECT_EQ(milliseconds, 1.5f);
}

TEST_F(DoubleOfCuda, WorkOfAnotherDeviceThanTheCurrentOneIsRefused) {
  begin(2);
  cuda->cudaSetDevice(1);
  EXPECT_EQ(cuda->cudaMemsetAsync(buffers[0], 0, 4, streams[0]), kCudaErrorInvalidHandle);
}

}  // namespace
}  // namespace plumbline::cuda
