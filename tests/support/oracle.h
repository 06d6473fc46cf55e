// Reads reference data below tests/oracles: one JSON object a line, plain or gzip. Header only; needs zlib
// and nlohmann::json in the test binary that includes it.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

namespace plumbline::test {

// "oracles/megatron/README.md" -> its path on this machine.
inline std::string data_path(const std::string& below_tests) {
  return std::string(PLUMBLINE_TEST_DATA) + "/" + below_tests;
}

// A whole file, unzipped where it is gzip (zlib hands other files through as they are). A missing file fails
// the test.
inline std::string read_data(const std::string& below_tests) {
  const gzFile file = gzopen(data_path(below_tests).c_str(), "rb");
  if (file == nullptr) {
    ADD_FAILURE() << "cannot read " << below_tests;
    return {};
  }
  std::string content;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const int got = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()));
    if (got <= 0) {
      EXPECT_EQ(got, 0) << "damaged: " << below_tests;
      break;
    }
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
  gzclose(file);
  return content;
}

// Calls visit(json) for every line and returns their number, which a test should compare with the known one:
// a loop over an empty file proves nothing. A line that is not JSON fails the test.
template <typename Visit>
int for_each_line(const std::string& below_tests, Visit visit) {
  const std::string content = read_data(below_tests);
  int lines = 0;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    const nlohmann::json line =
        nlohmann::json::parse(content.begin() + static_cast<std::ptrdiff_t>(at),
                              content.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    at = end + 1;
    ++lines;
    if (line.is_discarded()) {
      ADD_FAILURE() << below_tests << ":" << lines << " is not JSON";
      continue;
    }
    visit(line);
  }
  return lines;
}

}  // namespace plumbline::test
