// No report of family C is without a test that carries its id.
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/oracle.h"

namespace plumbline::test {
namespace {

TEST(FamilyCCoverage, EveryReportHasATest) {
  std::string text;
  for (const char* file : {"keys", "state"}) {
    std::ifstream stream(data_path(std::string("engine/checkpoint/family_c_") + file + "_test.cc"));
    text.append(std::istreambuf_iterator<char>(stream), {});
  }
  const int lines = for_each_line("oracles/public_reports/family_c.jsonl", [&](const nlohmann::json& line) {
    const std::string id = line["id"];
    const std::size_t comment = text.find("\n// " + id + ": ");
    ASSERT_NE(comment, std::string::npos) << id;
    const std::size_t test = text.find("\nTEST(FamilyC, ", comment);
    // The number of the report's first source stands in the name of the test below the comment.
    const std::string source = line["source"];
    const std::size_t digits = source.find('#') + 1;
    const std::string number = source.substr(digits, source.find_first_not_of("0123456789", digits) - digits);
    EXPECT_NE(text.substr(test, text.find('{', test) - test).find(number), std::string::npos)
        << id << ": " << source;
  });
  EXPECT_EQ(lines, 23);
}

}  // namespace
}  // namespace plumbline::test
