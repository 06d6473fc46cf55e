// Starts an executable the way a user does, through a shell, and keeps what it prints and its exit code.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "engine/base/text.h"

namespace plumbline {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

// The running test's name as part of a file's: parameters are set off by slashes.
inline std::string file_name_of_test() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "_" + test->name();
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

// `arguments` are shell words; `environment` stands before the program ("NO_COLOR=1"). Colour, width and
// configuration variables of the caller do not reach it.
inline Outcome run_program(const std::string& executable, const std::string& arguments,
                           const std::string& environment = "") {
  const std::string errors = testing::TempDir() + "plumbline_" + file_name_of_test() + ".err";
  const std::string line = "env -u NO_COLOR -u CLICOLOR_FORCE -u COLUMNS -u PLUMBLINE_ENGINE " + environment +
                           " '" + executable + "' " + arguments + " 2>'" + errors + "' </dev/null";
  Outcome outcome;
  std::FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  std::size_t got = 0;
  while ((got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0)
    outcome.out.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.err = read_file(errors).value_or("");
  std::remove(errors.c_str());
  return outcome;
}

inline Outcome run_plumbline(const std::string& arguments, const std::string& environment = "") {
  return run_program(PLUMBLINE_EXECUTABLE, arguments, environment);
}

}  // namespace plumbline
