// Shared by the tests of engine/config.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/config/loader.h"
#include "engine/config/validate.h"

namespace plumbline {

// A file that goes with the test that made it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content, const std::string& ending = ".toml")
      : path_(testing::TempDir() + "plumbline_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(counter()++) +
              ending) {
    EXPECT_TRUE(write_file(path_, content));
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  static int& counter() {
    static int value = 0;
    return value;
  }
  std::string path_;
};

inline Result<LoadedConfig> load(std::vector<std::string> arguments, Environment environment = {}) {
  return load_config({std::move(arguments), std::move(environment)});
}

// The configuration of flags that must load.
inline LoadedConfig loaded(std::vector<std::string> arguments, Environment environment = {}) {
  Result<LoadedConfig> result = load(std::move(arguments), std::move(environment));
  EXPECT_TRUE(result) << result.error().text();
  return result ? *result : LoadedConfig{};
}

// The error of flags that must not load.
inline std::string refusal(std::vector<std::string> arguments, Environment environment = {}) {
  const Result<LoadedConfig> result = load(std::move(arguments), std::move(environment));
  EXPECT_FALSE(result);
  return result ? std::string() : result.error().text();
}

using Flags = std::vector<std::string>;

inline Validation check(const Flags& flags, Purpose purpose = Purpose::kRun) {
  const LoadedConfig given = loaded(flags);
  return validate_all(given.config, given.origins, purpose);
}

// Flags that break one rule, and a part of the message about it.
struct Broken {
  Flags flags;
  std::string message;
};

inline void refuses(const std::vector<Broken>& cases, Purpose purpose = Purpose::kRun) {
  for (const Broken& one : cases) {
    const Validation result = check(one.flags, purpose);
    std::string all;
    for (const Error& error : result.errors) all += error.text() + "\n";
    EXPECT_EQ(result.errors.size(), 1u) << testing::PrintToString(one.flags) << "\n" << all;
    EXPECT_NE(all.find(one.message), std::string::npos) << "no '" << one.message << "' in\n" << all;
    EXPECT_NE(all.find(" — "), std::string::npos) << "no fix in " << all;
  }
}

}  // namespace plumbline
