#include "cli/capture.h"

#include <array>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/assert.h"

namespace plumbline::cli {
namespace {

constexpr std::size_t kMost = 1 << 20;

// Reads to the end even beyond the limit, so that the child never waits for a full pipe.
std::string read_all(int descriptor) {
  std::string out;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while ((got = ::read(descriptor, buffer.data(), buffer.size())) > 0) {
    if (out.size() <= kMost) out.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return out;
}

}  // namespace

Result<std::string> capture(const std::vector<std::string>& arguments) {
  PL_ASSERT(!arguments.empty());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::kIo, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> copies = arguments;
  std::vector<char*> raw;
  for (std::string& copy : copies) raw.push_back(copy.data());
  raw.push_back(nullptr);
  pid_t child = 0;
  const int started = ::posix_spawn(&child, raw[0], &actions, nullptr, raw.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (started != 0) {
    ::close(ends[0]);
    return fail(ErrorCode::kMissing,
                fmt::format("cannot start '{}': {}", arguments[0], std::strerror(started)));
  }
  std::string out = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || out.size() > kMost) {
    return fail(ErrorCode::kState, fmt::format("'{}' did not end well", arguments[0]));
  }
  return out;
}

}  // namespace plumbline::cli
