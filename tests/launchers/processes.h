// The processes of a run, found by the name of its record in their command lines.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cli/run_engine.h"

namespace plumbline::test {

struct RunProcess {
  pid_t pid = 0, parent = 0;
  int rank = -1;         // of the process that a launcher started, by its variables
  bool is_rank = false;  // the rank itself: a child of that process
};

inline std::string proc_file(pid_t pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline int rank_in(const std::string& environment) {
  for (const std::string name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const std::string key = '\0' + name + "=";
    const std::size_t at = ('\0' + environment).find(key);
    if (at != std::string::npos) return std::atoi(environment.c_str() + at + key.size() - 1);
  }
  return -1;
}

// Only the engine's: `record` is in the launcher's command line too.
inline std::vector<RunProcess> processes_of(const std::string& record) {
  std::vector<RunProcess> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || proc_file(pid, "comm").rfind("plumbline", 0) != 0) continue;
    if (proc_file(pid, "cmdline").find(record) == std::string::npos) continue;
    RunProcess process{pid, 0, rank_in(proc_file(pid, "environ")), false};
    std::istringstream stat(proc_file(pid, "stat"));
    std::string word;
    stat >> word >> word;
    char state = ' ';
    stat >> state >> process.parent;
    if (state != 'Z') found.push_back(process);
  }
  for (RunProcess& process : found)
    process.is_rank = std::any_of(found.begin(), found.end(),
                                  [&](const RunProcess& other) { return other.pid == process.parent; });
  return found;
}

// A command in the background, in a process group of its own, and what it prints.
class BackgroundCommand {
 public:
  explicit BackgroundCommand(const std::string& command) : output_(temporary("output")) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    const int output = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(output, 1);
    ::dup2(output, 2);
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    const std::string line = "exec " + (command.rfind("TORCH_", 0) == 0 ? "env " + command : command);
    ::execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
    std::_Exit(127);
  }
  ~BackgroundCommand() {
    if (!ended_) ::kill(-pid_, SIGKILL);
  }

  pid_t pid() const { return pid_; }
  std::string output() const { return read_file(output_).value_or(""); }

  // Waits for its end, at most `seconds`; a hang fails the test.
  Outcome wait(int seconds = 60) {
    Outcome outcome;
    int status = 0;
    for (int i = 0; i < seconds * 50; ++i) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        ended_ = true;
        outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        outcome.out = output();
        return outcome;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << "the command did not end within " << seconds << " s:\n" << output();
    return outcome;
  }

 private:
  std::string output_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

}  // namespace plumbline::test
