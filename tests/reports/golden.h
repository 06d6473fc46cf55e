// Comparison with files in tests/reports/golden. PLUMBLINE_UPDATE_GOLDEN=1 rewrites them instead.
#pragma once

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "engine/base/text.h"

namespace plumbline {

inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(PLUMBLINE_TEST_DATA) + "/reports/golden/" + name;
  if (std::getenv("PLUMBLINE_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, text));
  }
  const Result<std::string> expected = read_file(path);
  ASSERT_TRUE(expected) << expected.error().text();
  EXPECT_EQ(*expected, text) << "PLUMBLINE_UPDATE_GOLDEN=1 rewrites " << path;
}

}  // namespace plumbline
