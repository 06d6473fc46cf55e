#include "cli/exec_engine.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/common/output.h"
#include "cli/common/program.h"

namespace plumbline::cli {

Result<std::string> find_engine() {
  const char* given = std::getenv("PLUMBLINE_ENGINE");
  std::string path = given == nullptr ? "" : given;
  if (path.empty()) {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error)
      return fail(ErrorCode::kMissing,
                  fmt::format("cannot tell where this executable is: {}", error.message()));
    path = (self.parent_path() / "plumbline-engine").string();
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return fail(ErrorCode::kMissing,
                fmt::format("plumbline-engine is not at '{}' ({}) — it is built where CMake finds LibTorch "
                            "(Debian: libtorch-dev): "
                            "cmake --build BUILD --target plumbline-engine; or name it in PLUMBLINE_ENGINE",
                            path, std::strerror(errno)));
  }
  return path;
}

int exec_engine(const std::vector<std::string>& arguments) {
  const Result<std::string> engine = find_engine();
  if (!engine) return report(engine.error());
  std::vector<char*> raw;
  std::string name = program_name();  // what the user typed is what help and errors call it
  raw.push_back(name.data());
  std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  for (std::string& argument : rest) raw.push_back(argument.data());
  raw.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(engine->c_str(), raw.data());
  return report(
      Error{ErrorCode::kMissing, fmt::format("cannot execute '{}': {}", *engine, std::strerror(errno)), {}});
}

}  // namespace plumbline::cli
