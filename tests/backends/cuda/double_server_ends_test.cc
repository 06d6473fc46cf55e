// What the doubles' server makes of processes that end, and processes of a server that does.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/backends/cuda/one_rank.h"

namespace plumbline::cuda {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace plumbline::cuda
