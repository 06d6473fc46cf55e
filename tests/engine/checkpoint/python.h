// A Python with torch, for the tests of interoperation. Debian: apt-get install --no-install-recommends
// python3-torch.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace plumbline::test {

// PLUMBLINE_PYTHON, else the system's; empty when it cannot import torch.
inline const std::string& torch_python() {
  static const std::string found = [] {
    const char* given = std::getenv("PLUMBLINE_PYTHON");
    for (const std::string& python : {std::string(given == nullptr ? "" : given),
                                      std::string("/usr/bin/python3"), std::string("python3")}) {
      if (!python.empty() && std::system((python + " -c 'import torch' >/dev/null 2>&1").c_str()) == 0)
        return python;
    }
    return std::string();
  }();
  return found;
}

// Runs the script and returns its output; a failure fails the test.
inline std::string run_python(const std::string& arguments) {
  const std::string line =
      torch_python() + " " + std::string(PLUMBLINE_TEST_DATA) + "/engine/checkpoint/" + arguments + " 2>&1";
  FILE* pipe = ::popen(line.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string out;
  char buffer[4096];
  while (std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, got);
  EXPECT_EQ(::pclose(pipe), 0) << line << "\n" << out;
  return out;
}

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "plumbline_checkpoint_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace plumbline::test

#define PL_NEEDS_TORCH_PYTHON()                                                                      \
  if (torch_python().empty())                                                                        \
  GTEST_SKIP()                                                                                       \
      << "NOT RUN: no Python with torch (apt-get install --no-install-recommends python3-torch, or " \
         "set PLUMBLINE_PYTHON)"
