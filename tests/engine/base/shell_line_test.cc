#include "engine/base/shell_line.h"

#include <array>
#include <cstdio>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plumbline {
namespace {

TEST(ShellLine, PlainWordsStayPlain) {
  EXPECT_EQ(shell_line({"plumbline", "run", "--slow", "rank=2:1.3", "a,b/c@d+e%f"}),
            "plumbline run --slow rank=2:1.3 a,b/c@d+e%f");
  EXPECT_EQ(shell_line({"a b", "", "it's", "$HOME", "*"}), R"('a b' '' 'it'\''s' '$HOME' '*')");
  EXPECT_EQ(shell_line({}), "");
}

// A shell gives back the words that were put in.
RC_GTEST_PROP(ShellLine, AShellGivesTheWordsBack, ()) {
  const auto words = *rc::gen::resize(6, rc::gen::container<std::vector<std::string>>(
                                             rc::gen::container<std::string>(rc::gen::nonZero<char>())));
  std::string wanted;
  for (const std::string& word : words) wanted += word + "|";
  const std::string line = "for w in " + shell_line(words) + "; do printf '%s|' \"$w\"; done";
  FILE* pipe = ::popen(line.c_str(), "r");
  RC_ASSERT(pipe != nullptr);
  std::string got;
  std::array<char, 256> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    got.append(buffer.data(), n);
  RC_ASSERT(::pclose(pipe) == 0);
  RC_ASSERT(got == wanted);
}

}  // namespace
}  // namespace plumbline
