// A server of the doubles and the processes that call it. Nothing here can hang: whatever is still there at its
// deadline is killed, and fails the test.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/backends/cuda/doubles.h"

namespace plumbline::cuda {

constexpr int kDeadline = 60;  // seconds

// Asks until it is so, or for too long.
inline bool until(const std::function<bool()>& so, double seconds = kDeadline / 2.0) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (so()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return so();
}

// Memory that the test shares with its children: zeros at first.
template <typename T>
class Shared {
 public:
  Shared()
      : at_(new (::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {
  }
  ~Shared() { ::munmap(at_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return at_; }

 private:
  T* at_;
};

// Children that end with the test.
class Processes {
 public:
  ~Processes() {
    for (Child& child : children_) {
      if (child.ended) continue;
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
  }
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Runs `body` in a child; its failed expectations are the child's exit code, and so this test's failure.
  std::size_t start(const std::function<void()>& body) {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) std::_Exit(99);
      body();
      std::fflush(nullptr);
      std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children_.push_back({pid, false});
    return children_.size() - 1;
  }
  void kill(std::size_t child) {
    ::kill(children_[child].pid, SIGKILL);
    ::waitpid(children_[child].pid, nullptr, 0);
    children_[child].ended = true;
  }
  // All that were not killed end, and well.
  void finish() {
    for (Child& child : children_) {
      if (child.ended) continue;
      int status = 0;
      child.ended = until([&] { return ::waitpid(child.pid, &status, WNOHANG) == child.pid; }, kDeadline);
      ASSERT_TRUE(child.ended) << "process " << child.pid << " hangs";
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "process " << child.pid << ": " << status;
    }
  }

 private:
  struct Child {
    pid_t pid = 0;
    bool ended = false;
  };
  std::vector<Child> children_;
};

// The program, listening until it is told to end or destroyed. Make it before processes that call it.
class DoubleServer {
 public:
  explicit DoubleServer(int devices, const std::string& config = "") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    socket = folder_ + "/socket";
    std::ofstream(folder_ + "/config.toml") << config;
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    server_ = process_.start([&] {
      ::dup2(ends[0], 0);
      ::close(ends[1]);
      const std::string count = std::to_string(devices);
      ::execl(PLUMBLINE_DOUBLE_SERVER_EXECUTABLE, "plumbline_double_server", "--devices", count.c_str(),
              "--socket", socket.c_str(), "--config", (folder_ + "/config.toml").c_str(), "--verdict",
              (folder_ + "/verdict.json").c_str(), "--", "cat", nullptr);
      std::_Exit(127);
    });
    ::close(ends[0]);
    hold_ = ends[1];
    EXPECT_TRUE(until([&] { return ::access(socket.c_str(), F_OK) == 0; })) << "the server does not listen";
  }
  ~DoubleServer() {
    ::close(hold_);
    process_.finish();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  DoubleServer(const DoubleServer&) = delete;
  DoubleServer& operator=(const DoubleServer&) = delete;

  void kill() { process_.kill(server_); }
  // Ends it, when nobody calls any more: what it found.
  std::vector<Finding> finish() {
    ::close(std::exchange(hold_, -1));
    process_.finish();
    std::ifstream file(folder_ + "/verdict.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Result<Verdict> verdict = parse_verdict_json(text, "the server's verdict");
    EXPECT_TRUE(verdict) << text;
    return verdict ? verdict->modes.at(0).findings : std::vector<Finding>();
  }

  std::string socket;

 private:
  std::string folder_ = "/tmp/plumbline-test.XXXXXX";
  int hold_ = -1;
  std::size_t server_ = 0;
  Processes process_;
};

// In a child: what it loads as CUDA and NCCL calls the server.
inline const Doubles& called_doubles(const std::string& socket) {
  ::setenv("PLUMBLINE_DOUBLE_SERVER", socket.c_str(), 1);
  return loaded_doubles();
}

}  // namespace plumbline::cuda
