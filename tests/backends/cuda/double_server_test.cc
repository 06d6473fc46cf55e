// The doubles across processes: each test's children call one server, and find what the doubles do in one process.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "backends/cuda/error.h"
#include "tests/backends/cuda/server_processes.h"

namespace plumbline::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kFloats = 64;

// What the processes of a test tell each other.
struct Board {
  std::array<std::atomic<int>, 4> ids_there{};
  std::array<UniqueId, 4> ids{};
  std::array<std::atomic<int>, 8> flags{};
  std::atomic<float*> address{nullptr};

  void raise(std::size_t flag) { flags[flag].fetch_add(1); }
  void wait_for(std::size_t flag, int count = 1) {
    EXPECT_TRUE(until([&] { return flags[flag].load() >= count; })) << "flag " << flag;
  }
};

// A rank in a process of its own: a device, a stream, a buffer, a communicator.
struct OneRank {
  OneRank(const DoubleServer& server, Shared<Board>& told, int number, int device = -1)
      : on(called_doubles(server.socket)),
        cuda(on.libraries->cuda),
        nccl(on.libraries->nccl),
        board(told),
        rank(number) {
    EXPECT_EQ(cuda.cudaSetDevice(device < 0 ? rank : device), 0);
    EXPECT_EQ(cuda.cudaStreamCreateWithFlags(&stream, kStreamNonBlocking), 0);
    EXPECT_EQ(cuda.cudaMalloc(reinterpret_cast<void**>(&buffer), kFloats * sizeof(float)), 0);
    for (std::size_t i = 0; i < kFloats; ++i)
      buffer[i] = static_cast<float>(100 * rank) + static_cast<float>(i);
  }

  // Begins to make communicator `number`.
  int init(int ranks, std::size_t number = 0) {
    if (rank == 0) {
      EXPECT_EQ(nccl.ncclGetUniqueId(&board->ids[number]), 0);
      board->ids_there[number] = 1;
    }
    EXPECT_TRUE(until([&] { return board->ids_there[number] != 0; }));
    CommConfig config;
    config.blocking = 0;
    return nccl.ncclCommInitRankConfig(&comm, ranks, board->ids[number], rank, &config);
  }
  void join(int ranks, std::size_t number = 0) {
    EXPECT_EQ(init(ranks, number), kNcclInProgress);
    EXPECT_EQ(outcome(), kNcclSuccess);
  }
  int state() const {
    int code = -1;
    EXPECT_EQ(nccl.ncclCommGetAsyncError(comm, &code), 0);
    return code;
  }
  int outcome() const {
    int code = kNcclInProgress;
    until([&] { return (code = state()) != kNcclInProgress; });
    return code;
  }
  int send(int peer, std::size_t from = 0, std::size_t count = 8) const {
    return nccl.ncclSend(buffer + from, count, 7, peer, comm, stream);
  }
  int receive(int peer, std::size_t to = 0, std::size_t count = 8) const {
    return nccl.ncclRecv(buffer + to, count, 7, peer, comm, stream);
  }
  bool idle() const { return cuda.cudaStreamQuery(stream) == 0; }
  bool drains() const {
    return until([&] { return idle(); });
  }
  bool stays_busy() const {
    for (int i = 0; i < 300; ++i) {
      if (idle()) return false;
    }
    return true;
  }
  void destroy() {
    EXPECT_EQ(nccl.ncclCommFinalize(comm), kNcclInProgress);
    EXPECT_EQ(outcome(), kNcclSuccess);
    EXPECT_EQ(nccl.ncclCommDestroy(comm), kNcclInProgress);
  }
  void abort() const { EXPECT_EQ(nccl.ncclCommAbort(comm), 0); }

  const Doubles& on;
  const CudaApi& cuda;
  const NcclApi& nccl;
  Shared<Board>& board;
  int rank;
  StreamHandle stream = nullptr;
  float* buffer = nullptr;
  CommHandle comm = nullptr;
};

// `body(rank)` in a process of its own for each of the ranks.
template <typename Body>
void ranks(Processes& processes, DoubleServer& server, Shared<Board>& board, int count, Body body) {
  for (int r = 0; r < count; ++r) {
    processes.start([&, r] {
      OneRank rank(server, board, r);
      body(rank);
    });
  }
}

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

// Rank 1 is killed while rank 0 waits for what it would send.
void killed_while_awaited(const std::string& config, const std::function<void(OneRank&)>& then) {
  DoubleServer server(3, config);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 3, [&](OneRank& at) {
    at.join(3);
    at.board->raise(0);
    if (at.rank == 1) ::pause();
    if (at.rank == 0) EXPECT_EQ(at.receive(1), 0);
    at.board->wait_for(0, 3);
    at.idle();
    at.board->raise(1);
    at.board->wait_for(2);
    then(at);
  });
  board->wait_for(1, 2);
  processes.kill(1);
  board->raise(2);
  processes.finish();
}

TEST(DoubleServer, AKilledProcessOfAnotherNodeIsToldOf) {  // N82, N83
  killed_while_awaited("[sim]\nranks_per_node = 1\n", [](OneRank& at) {
    if (at.rank == 2) {
      at.board->wait_for(3);
      EXPECT_EQ(at.state(), kNcclSuccess);  // which has nothing to do with it
      at.abort();
      return;
    }
    EXPECT_TRUE(until([&] { return at.state() == kNcclRemoteError; }));
    EXPECT_EQ(at.send(2), kNcclRemoteError);
    EXPECT_FALSE(at.idle());  // the kernel goes on
    at.abort();
    EXPECT_TRUE(at.drains());
    const std::vector<Finding> findings = at.on.findings();
    EXPECT_TRUE(
        std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.rule == "N83"; }));
    at.board->raise(3);
  });
}

TEST(DoubleServer, AKilledProcessOfTheSameNodeIsAHang) {  // N83
  killed_while_awaited("", [](OneRank& at) {
    if (at.rank == 0) {
      EXPECT_TRUE(until([&] {
        for (const Finding& finding : at.on.findings())
          if (finding.cause == "process-ended") return true;
        return false;
      }));
      EXPECT_EQ(at.state(), kNcclSuccess);
      EXPECT_TRUE(at.stays_busy());
    }
    at.abort();
    EXPECT_TRUE(at.drains());
  });
}

TEST(DoubleServer, AProcessKilledInAnInitEndsItForTheOthers) {  // N83
  DoubleServer server(4);
  Shared<Board> board;
  Processes processes;
  ranks(processes, server, board, 4, [](OneRank& at) {
    if (at.rank == 3) {  // too late: the process that listened at the address in the id is gone
      at.board->wait_for(2);
      EXPECT_EQ(at.init(4), kNcclSystemError);
      at.abort();
      return;
    }
    EXPECT_EQ(at.init(4), kNcclInProgress);
    at.board->raise(0);
    if (at.rank == 0) ::pause();
    at.board->wait_for(1);
    EXPECT_EQ(at.outcome(), kNcclRemoteError);
    at.abort();
  });
  board->wait_for(0, 3);
  processes.kill(0);
  board->raise(1);
  board->raise(2);
  processes.finish();
  processes.start([&] {
    const Doubles& on = called_doubles(server.socket);
    EXPECT_EQ(on.libraries->cuda.cudaSetDevice(0), 46);
    EXPECT_EQ(on.libraries->cuda.cudaSetDevice(3), 0);
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

TEST(DoubleServer, AProcessKilledInAHostFunctionLeavesNothingBehind) {
  DoubleServer server(1);
  Shared<Board> board;
  Processes processes;
  processes.start([&] {
    OneRank at(server, board, 0);
    const auto forever = [](void* argument) {
      (*static_cast<Shared<Board>*>(argument))->raise(0);
      ::pause();
    };
    EXPECT_EQ(at.cuda.cudaLaunchHostFunc(at.stream, forever, &board), 0);
    EXPECT_EQ(at.cuda.cudaLaunchHostFunc(at.stream, forever, &board), 0);
    at.drains();
  });
  board->wait_for(0);
  processes.kill(0);
  // The next one finds the device as it was, with nothing under way.
  processes.start([&] {
    OneRank at(server, board, 0);
    EXPECT_TRUE(until([&] { return at.on.step() == 0 && at.on.incomplete() == 0; }));
    at.join(1);
    at.destroy();
  });
  processes.finish();
  EXPECT_TRUE(server.finish().empty());
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

TEST(DoubleServer, ItsEndIsAnErrorOfEveryCall) {
  DoubleServer server(1);
  Shared<Board> board;
  Processes processes;
  processes.start([&] {
    OneRank at(server, board, 0);
    board->raise(0);
    board->wait_for(1);
    EXPECT_EQ(at.cuda.cudaStreamQuery(at.stream), 999);
    EXPECT_THAT(at.cuda.cudaGetErrorString(999), HasSubstr("has gone"));
  });
  board->wait_for(0);
  server.kill();
  board->raise(1);
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
