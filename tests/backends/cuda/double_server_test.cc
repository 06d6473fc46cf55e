// The doubles across processes: each test's children call one server, and find what the doubles do in one process.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "backends/cuda/error.h"
#include "tests/backends/cuda/one_rank.h"

namespace plumbline::cuda {
namespace {

using ::testing::HasSubstr;

TEST(DoubleServer, MessagesAndHostFunctionsCarryDataBetweenProcesses) {
  DoubleServer server(2);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 2, [](OneRank& at) {
    at.join(2);
    // In memory of this process alone, which no other could write.
    struct Work {
      float* buffer;
      std::vector<float> seen;
    } work{at.buffer, {}};
    const auto fill = [](void* argument) { static_cast<Work*>(argument)->buffer[0] += 0.5f; };
    const auto read = [](void* argument) {
      auto& own = *static_cast<Work*>(argument);
      own.seen.assign(own.buffer, own.buffer + 16);
    };
    EXPECT_EQ(at.cuda.cudaLaunchHostFunc(at.stream, fill, &work), 0);
    EXPECT_EQ(at.nccl.ncclGroupStart(), 0);
    EXPECT_EQ(at.send(1 - at.rank, 0), 0);
    EXPECT_EQ(at.receive(1 - at.rank, 8), 0);
    EXPECT_EQ(at.nccl.ncclGroupEnd(), 0);
    EXPECT_EQ(at.cuda.cudaLaunchHostFunc(at.stream, read, &work), 0);
    EXPECT_TRUE(at.drains());
    const float other = static_cast<float>(100 * (1 - at.rank));
    ASSERT_EQ(work.seen.size(), 16u);
    EXPECT_EQ(work.seen[8], other + 0.5f);
    EXPECT_EQ(work.seen[11], other + 3.0f);
    at.destroy();
  });
  processes.finish();
  EXPECT_TRUE(server.finish().empty());
}

TEST(DoubleServer, CollectivesOfFourProcesses) {
  DoubleServer server(4);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 4, [](OneRank& at) {
    at.join(4);
    EXPECT_EQ(at.nccl.ncclAllReduce(at.buffer, at.buffer, 8, 7, 0, at.comm, at.stream), 0);
    EXPECT_EQ(at.nccl.ncclAllGather(at.buffer + 8 + at.rank, at.buffer + 32, 1, 7, at.comm, at.stream), 0);
    EXPECT_TRUE(at.drains());
    EXPECT_EQ(at.buffer[3], 600.0f + 4 * 3);
    for (int r = 0; r < 4; ++r) EXPECT_EQ(at.buffer[32 + r], static_cast<float>(100 * r + 8 + r));
    at.destroy();
  });
  processes.finish();
  EXPECT_TRUE(server.finish().empty());
}

TEST(DoubleServer, MemoryIsOneForAllAndTimeIsVirtual) {
  DoubleServer server(2);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 2, [](OneRank& at) {
    if (at.rank == 1) {
      at.board->wait_for(0);
      const float* const other = at.board->address;
      EXPECT_EQ(other[7], 7.0f);
      // Its own device has nothing to do, whatever the other's has.
      EXPECT_EQ(at.cuda.cudaFree(at.buffer), 0);
      EXPECT_EQ(at.cuda.cudaFree(at.buffer), kCudaErrorInvalidValue);
      at.board->raise(1);
      return;
    }
    std::array<EventHandle, 2> events{};
    for (EventHandle& event : events) EXPECT_EQ(at.cuda.cudaEventCreateWithFlags(&event, kEventDefault), 0);
    EXPECT_EQ(at.cuda.cudaEventRecord(events[0], at.stream), 0);
    at.on.next_takes(1500000);
    EXPECT_EQ(at.cuda.cudaMemcpyAsync(at.buffer + 32, at.buffer, 4, kMemcpyDefault, at.stream), 0);
    EXPECT_EQ(at.cuda.cudaEventRecord(events[1], at.stream), 0);
    EXPECT_EQ(at.cuda.cudaFree(at.buffer), kCudaErrorInvalidValue);  // N50: it would wait
    at.board->address = at.buffer;
    at.board->raise(0);
    at.board->wait_for(1);
    EXPECT_TRUE(at.drains());
    float milliseconds = 0;
    EXPECT_EQ(at.cuda.cudaEventElapsedTime(&milliseconds, events[0], events[1]), 0);
    EXPECT_EQ(milliseconds, 1.5f);
    EXPECT_EQ(at.buffer[32], 0.0f);
    void* much = nullptr;
    EXPECT_EQ(at.cuda.cudaMalloc(&much, std::size_t{1} << 44), kCudaErrorMemoryAllocation);
    EXPECT_EQ(at.on.peak(0), static_cast<long long>(kFloats * sizeof(float)));
    EXPECT_EQ(at.on.peak(9), -1);
  });
  processes.finish();
}

TEST(DoubleServer, RefusesWhatTheDoublesOfOneProcessRefuse) {
  DoubleServer server(2);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 2, [](OneRank& at) {
    EXPECT_EQ(at.cuda.cudaSetDevice(2), kCudaErrorInvalidDevice);
    EXPECT_EQ(at.on.reset(2, ""), 2);
    EXPECT_THAT(at.on.error(), HasSubstr("PLUMBLINE_DOUBLE_SERVER"));
    if (at.rank == 1) at.board->wait_for(0);
    EXPECT_EQ(at.init(2), kNcclInProgress);
    if (at.rank == 0) {
      EXPECT_EQ(at.send(1), kNcclInvalidArgument);  // N79
      at.board->raise(0);
    }
    EXPECT_EQ(at.outcome(), kNcclSuccess);
    EXPECT_EQ(at.nccl.ncclGroupEnd(), kNcclInvalidUsage);  // N8
    at.nccl.ncclGroupStart();
    EXPECT_EQ(at.send(1 - at.rank), 0);
    EXPECT_EQ(at.send(7), kNcclInvalidArgument);              // N27
    EXPECT_EQ(at.nccl.ncclGroupEnd(), kNcclInvalidArgument);  // N10
    EXPECT_TRUE(at.idle());
    std::array<float, 8> own{};  // memory that the doubles do not know
    EXPECT_EQ(at.nccl.ncclSend(own.data(), 8, 7, 1 - at.rank, at.comm, at.stream), kNcclInvalidArgument);
    EXPECT_EQ(at.cuda.cudaMemsetAsync(own.data(), 0, 4, at.stream), kCudaErrorInvalidValue);
    EXPECT_EQ(at.cuda.cudaStreamQuery(reinterpret_cast<StreamHandle>(&own)), kCudaErrorInvalidHandle);
    EXPECT_EQ(at.cuda.cudaEventQuery(reinterpret_cast<EventHandle>(&own)), kCudaErrorInvalidHandle);
    EXPECT_EQ(at.cuda.cudaSetDevice(1 - at.rank), 0);
    EXPECT_EQ(at.cuda.cudaMemsetAsync(at.buffer, 0, 4, at.stream), kCudaErrorInvalidHandle);
    EXPECT_EQ(at.cuda.cudaSetDevice(at.rank), 0);
    at.abort();
    EXPECT_EQ(at.send(1 - at.rank), kNcclInvalidArgument);
  });
  processes.finish();
}

TEST(DoubleServer, TwoProcessesOnOneDeviceAreRefused) {  // N71
  DoubleServer server(2);
  Shared<Board> board;
  Processes processes;
  for (int r = 0; r < 2; ++r) {
    processes.start([&, r] {
      OneRank at(server, board, r, 1);
      at.init(2);
      EXPECT_EQ(at.outcome(), kNcclInvalidUsage);
    });
  }
  processes.finish();
}

TEST(DoubleServer, ADeadlockIsFoundAndAnotherThreadAbortsIt) {
  DoubleServer server(2);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 2, [](OneRank& at) {
    at.join(2);
    EXPECT_EQ(at.send(1 - at.rank), 0);  // both wait to be received
    EXPECT_EQ(at.receive(1 - at.rank), 0);
    EXPECT_TRUE(at.stays_busy());
    at.board->raise(0);
    at.board->wait_for(0, 2);
    if (at.rank == 0) {
      const std::vector<Finding> findings = at.on.findings();
      ASSERT_EQ(findings.size(), 1u);
      EXPECT_EQ(findings[0].kind, FindingKind::kDeadlock);
      EXPECT_EQ(findings[0].cause, "cycle");
      EXPECT_EQ(findings[0].cycle.size(), 4u);
      at.board->raise(1);
    }
    at.board->wait_for(1);
    EXPECT_EQ(at.state(), kNcclSuccess);  // N86: nobody says a word
    std::thread watchdog([&] {
      EXPECT_EQ(at.cuda.cudaSetDevice(at.rank), 0);
      at.abort();
    });
    EXPECT_TRUE(at.drains());
    watchdog.join();
  });
  processes.finish();
}

TEST(DoubleServer, AHostFunctionThatTakesItsTimeHoldsNobodyElse) {
  DoubleServer server(3);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 3, [](OneRank& at) {
    if (at.rank == 2) {
      const auto slow = [](void* argument) {
        Shared<Board>& told = *static_cast<Shared<Board>*>(argument);
        told->raise(0);
        told->wait_for(1, 2);
      };
      EXPECT_EQ(at.cuda.cudaLaunchHostFunc(at.stream, slow, &at.board), 0);
      EXPECT_TRUE(at.drains());
      EXPECT_EQ(at.board->flags[1].load(), 2);
      return;
    }
    at.board->wait_for(0);
    at.join(2);
    EXPECT_EQ(at.rank == 0 ? at.send(1) : at.receive(0), 0);
    EXPECT_TRUE(at.drains());
    EXPECT_EQ(at.buffer[3], 3.0f);
    const Verdict verdict = at.on.verdict(true);
    EXPECT_TRUE(verdict.modes.at(0).completes);  // what runs is no deadlock
    EXPECT_TRUE(verdict.modes.at(0).findings.empty());
    at.destroy();
    at.board->raise(1);
  });
  processes.finish();
}

TEST(DoubleServer, DevicesServeOneRunAfterAnother) {
  DoubleServer server(2);
  Shared<Board> board;
  for (const std::size_t run : {0u, 1u, 2u}) {
    Processes processes;
    ranks(processes, server, board, 2, [&](OneRank& at) {
      at.join(2, run);
      EXPECT_EQ(at.rank == 0 ? at.send(1) : at.receive(0), 0);
      EXPECT_TRUE(at.drains());
      EXPECT_EQ(at.buffer[5], 5.0f);
      at.destroy();
    });
    processes.finish();
  }
  EXPECT_TRUE(server.finish().empty());
}

TEST(DoubleServer, AChildOfForkIsAProcessOfItsOwn) {
  DoubleServer server(2);
  Shared<Board> board;
  Processes processes;
  processes.start([&] {
    OneRank parent(server, board, 0);
    Processes own;
    own.start([&] {
      OneRank child(server, board, 1);
      child.join(2);
      EXPECT_EQ(child.receive(0), 0);
      EXPECT_TRUE(child.drains());
      EXPECT_EQ(child.buffer[2], 2.0f);
      child.destroy();
    });
    parent.join(2);
    EXPECT_EQ(parent.send(1), 0);
    EXPECT_TRUE(parent.drains());
    parent.destroy();
    own.finish();
    EXPECT_TRUE(parent.idle());
  });
  processes.finish();
}

TEST(DoubleServer, WithoutItCallsSayWhatIsMissing) {
  Shared<Board> board;
  Processes processes;
  processes.start([] {
    const Doubles& on = called_doubles("/nowhere/socket");
    int count = 0;
    const Status status =
        cuda_status(*on.libraries, on.libraries->cuda.cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("PLUMBLINE_DOUBLE_SERVER=/nowhere/socket"));
    UniqueId id;
    const Status nccl =
        nccl_status(*on.libraries, on.libraries->nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
    ASSERT_FALSE(nccl);
    EXPECT_THAT(nccl.error().message, HasSubstr("PLUMBLINE_DOUBLE_SERVER=/nowhere/socket"));
  });
  processes.finish();
}

TEST(DoubleServer, WithoutACommandItEndsWhenAllHaveGone) {
  std::string folder = "/tmp/plumbline-test.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string socket = folder + "/socket";
  Processes processes;
  const auto serve = [&] {
    ::execl(PLUMBLINE_DOUBLE_SERVER_EXECUTABLE, "plumbline_double_server", "--socket", socket.c_str(),
            nullptr);
    std::_Exit(127);
  };
  processes.start(serve);
  ASSERT_TRUE(until([&] { return ::access(socket.c_str(), F_OK) == 0; }));
  processes.start([&] {
    int count = 0;
    EXPECT_EQ(called_doubles(socket).libraries->cuda.cudaGetDeviceCount(&count), 0);
    EXPECT_EQ(count, 8);
  });
  processes.finish();
  EXPECT_NE(::access(socket.c_str(), F_OK), 0);
  std::filesystem::remove_all(folder);
}

TEST(DoubleServer, RunsACommandAndReturnsItsCode) {
  const std::string program = PLUMBLINE_DOUBLE_SERVER_EXECUTABLE;
  const auto code = [&](const std::string& words) {
    return WEXITSTATUS(std::system((program + words).c_str()));
  };
  EXPECT_EQ(code(" -- sh -c 'test -S \"$PLUMBLINE_DOUBLE_SERVER\" && test -f \"$NCCL_LIBRARY\" && exit 3'"),
            3);
  EXPECT_EQ(code(" -- sh -c 'kill -9 $$'"), 128 + 9);
  EXPECT_EQ(code(" -- ./no-such-program 2>/dev/null"), 1);
  EXPECT_EQ(code(" --config /dev/null -- true"), 0);
  EXPECT_EQ(code(" --config " PLUMBLINE_TEST_DATA "/CMakeLists.nothing -- true 2>/dev/null"), 105);
}

}  // namespace
}  // namespace plumbline::cuda
