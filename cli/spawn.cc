#include "cli/spawn.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace plumbline::cli {

Result<int> spawn(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (failed != 0) {
    return fail(ErrorCode::kIo, fmt::format("cannot start '{}': {}", arguments[0], std::strerror(failed)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      return fail(ErrorCode::kIo,
                  fmt::format("cannot wait for '{}': {}", arguments[0], std::strerror(errno)));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace plumbline::cli
