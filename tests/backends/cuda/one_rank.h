// A rank in a process of its own, by the C functions, and what ranks tell each other.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "tests/backends/cuda/server_processes.h"

namespace plumbline::cuda {

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

}  // namespace plumbline::cuda
