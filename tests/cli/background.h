// Runs of one process a rank that go on while a test looks at them.
#pragma once

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sim/verdict.h"
#include "tests/cli/run_engine.h"

namespace plumbline {

inline std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  std::vector<pid_t> children;
  for (pid_t pid = 0; file >> pid;) children.push_back(pid);
  return children;
}

// A run in the background, with what it prints in a file. `before`: words of a program that starts it and stays, and
// then the engine is its only child.
class Background {
 public:
  explicit Background(const std::string& arguments, const std::string& name = "",
                      std::vector<std::string> before = {})
      : errors_(temporary(name + "err")), within_(!before.empty()) {
    std::vector<std::string> words = std::move(before);
    words.insert(words.end(), {PLUMBLINE_ENGINE_EXECUTABLE, "run"});
    std::istringstream text(arguments);
    for (std::string word; text >> word;) words.push_back(word);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int errors = ::open(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(errors, 2);
    ::dup2(errors, 1);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    std::vector<char*> raw;
    for (std::string& word : words) raw.push_back(word.data());
    raw.push_back(nullptr);
    ::execv(raw[0], raw.data());
    std::_Exit(127);
  }

  pid_t pid() const { return pid_; }
  // The engine's own process; -1 while it is not there.
  pid_t engine() const {
    if (!within_) return pid_;
    const std::vector<pid_t> children = children_of(pid_);
    return children.empty() ? -1 : children.front();
  }

  // The ranks' processes, once they have taken a step: their records have grown.
  std::vector<pid_t> ranks_at_work(const std::string& record, std::size_t ranks) {
    for (int i = 0; i < 600; ++i) {
      const std::string bytes = read_file(record + ".ranks/rank-00000.plmb").value_or("");
      const std::vector<pid_t> children = children_of(engine());
      const Result<RunRecord> parsed = parse_record(bytes, "rank 0");
      if (children.size() == ranks && parsed && !parsed->steps.empty()) return children;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "the ranks did not begin: " << read_file(errors_).value_or("");
    return {};
  }

  Outcome wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    Outcome outcome;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.err = read_file(errors_).value_or("");
    return outcome;
  }

 private:
  std::string errors_;
  bool within_;
  pid_t pid_ = -1;
};

inline void expect_gone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_NE(0, ::kill(pid, 0)) << "process " << pid << " was left behind";
}

// A port that is taken while the object lives.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    EXPECT_EQ(0, ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size));
    EXPECT_EQ(0, ::listen(socket_, 1));
    EXPECT_EQ(0, ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size));
    port = ntohs(address.sin_port);
  }
  ~TakenPort() { free(); }
  void free() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  int port = 0;

 private:
  int socket_;
};

// The circle of a record's first finding, "rank operation: reason" by edge.
inline std::vector<std::string> circle_of(const std::string& path) {
  const Result<Verdict> verdict = parse_verdict_json(record_at(path).verdict_json, path);
  EXPECT_TRUE(verdict) << path;
  std::vector<std::string> operations;
  if (!verdict || verdict->modes.empty() || verdict->modes.front().findings.empty()) return operations;
  for (const WaitEdge& edge : verdict->modes.front().findings.front().cycle)
    operations.push_back(std::to_string(edge.from.rank) + " " + edge.from.text + ": " + edge.reason);
  return operations;
}

}  // namespace plumbline
