// Runs of plumbline-engine by command line, and what they leave.
#pragma once

#include <string>

#include "engine/runtime/run_record.h"
#include "tests/cli/run_program.h"

namespace plumbline {

// The engine is left out of builds without LibTorch; its tests are then skipped by name, never passed over silently.
#define NEEDS_ENGINE \
  if (std::string(PLUMBLINE_ENGINE_EXECUTABLE).empty()) GTEST_SKIP() << "plumbline-engine is not built"

inline Outcome run_engine(const std::string& arguments, const std::string& environment = "") {
  return run_program(PLUMBLINE_ENGINE_EXECUTABLE, arguments, "OMP_NUM_THREADS=1 " + environment);
}

// A path of this test's own.
inline std::string temporary(const std::string& name) {
  return testing::TempDir() + file_name_of_test() + "_" + name;
}

inline RunRecord record_at(const std::string& path) {
  const Result<std::string> bytes = read_file(path);
  EXPECT_TRUE(bytes) << path;
  Result<RunRecord> record = parse_record(bytes.value_or(""), path);
  EXPECT_TRUE(record) << (record ? "" : record.error().text());
  return record ? *record : RunRecord();
}

}  // namespace plumbline
