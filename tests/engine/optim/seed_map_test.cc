// docs/seed-map.md is complete and true: every upstream name has a row, every row's symbol is declared in its header,
// and every row's test exists. The checker is tried on made-up tables first: each fault must be seen.
#include "tests/engine/optim/seed_map.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/optim/seed_map_names.h"

namespace plumbline::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<UpstreamName> kNames{{"step", {}, {"success"}}, {"zero_grad", {"set_to_none"}, {}}};

constexpr const char* kGood =
    "# A map\n\n"
    "| upstream | our symbol | header | parameters, return value | test |\n"
    "|---|:---|---|---|---|\n"
    "| `step` | `Optimizer::step` | `a.h` | none | `Step.Works` |\n"
    "| `step -> success` | `Outcome::success` | `a.h` | same meaning | `Step.Works` |\n"
    "\nText between.\n\n"
    "| upstream | our symbol | header | parameters, return value | test |\n"
    "|---|---|---|---|---|\n"
    "| `zero_grad` | `Optimizer::zero_grad` | `a.h` | set_to_none | `Step.Zero` |\n"
    "| `zero_grad(set_to_none)` | `Optimizer::zero_grad(set_to_none)` | `a.h` | the same | `Step.Zero` |\n";

constexpr const char* kHeader =
    "struct Outcome { bool success = false; };\n"
    "class Optimizer {\n public:\n  Outcome step();\n  void zero_grad(bool set_to_none = true);\n};\n";

std::vector<std::string> check_made_up(std::string document) {
  const auto read = [](const std::string& path) -> std::optional<std::string> {
    if (path == "a.h") return kHeader;
    return std::nullopt;
  };
  return check_seed_map(document, kNames, read,
                        tests_defined("TEST(Step, Works) {}\nRC_GTEST_PROP(Step,\n   Zero, ()) {}\n"));
}

std::string with(const std::string& from, const std::string& to) {
  std::string document = kGood;
  const std::size_t at = document.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return document.replace(at, from.size(), to);
}

TEST(SeedMapChecker, AGoodTableHasNoFault) { EXPECT_THAT(check_made_up(kGood), IsEmpty()); }

TEST(SeedMapChecker, EveryFaultIsSeen) {
  EXPECT_THAT(check_made_up(with("| `step` | `Optimizer::step` | `a.h` | none | `Step.Works` |\n", "")),
              ElementsAre("step: no row"));
  EXPECT_THAT(check_made_up(with("Optimizer::step`", "Optimizer::stop`")),
              ElementsAre("line 5: step: Optimizer::stop is not declared in a.h"));
  EXPECT_THAT(check_made_up(with("`Optimizer::step`", "")),
              ElementsAre("line 5: step:  is not declared in a.h"));
  EXPECT_THAT(
      check_made_up(with("Optimizer::zero_grad(set_to_none)", "Optimizer::zero_grad(none)")),
      ElementsAre("line 13: zero_grad(set_to_none): Optimizer::zero_grad(none) is not declared in a.h"));
  EXPECT_THAT(check_made_up(with("`a.h` | none", "`b.h` | none")),
              ElementsAre("line 5: step: no header b.h"));
  EXPECT_THAT(check_made_up(with("`Step.Works`", "`Step.Work`")),
              ElementsAre("line 5: step: no test Step.Work"));
  EXPECT_THAT(check_made_up(with("| none |", "|  |")),
              ElementsAre("line 5: step: says nothing about parameters and return value"));
  EXPECT_THAT(check_made_up(with("| none |", "| a | b |")),
              ElementsAre("line 5: 6 cells, a row has five", "step: no row"));
  EXPECT_THAT(check_made_up(with("`zero_grad` |", "`zero_gard` |")),
              ElementsAre("line 12: zero_gard: not in the list of upstream names", "zero_grad: no row"));
  EXPECT_THAT(check_made_up(with("`step -> success`", "`step`")),
              ElementsAre("line 6: step: a second row", "step -> success: no row"));
  EXPECT_EQ(check_made_up("").size(), 4u);
}

TEST(SeedMapChecker, TestsThatDoNotRunDoNotCount) {
  EXPECT_EQ(tests_defined("TEST(A, B) {}\nTEST_F( C , D ){}\nTEST(A, DISABLED_E) {}\n// TEST(A, F)\n"
                          "MY_TEST(A, G)\nTESTING(A, H)\n\"TEST(A, I)\""),
            (std::set<std::string>{"A.B", "C.D"}));
}

// --- the real table

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

const std::filesystem::path kRoot = std::filesystem::path(PLUMBLINE_TEST_DATA).parent_path();

// Of all test files but this one, whose made-up sources are strings anyway.
std::set<std::string> all_tests() {
  std::set<std::string> tests;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / "tests")) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.size() < 8 || name.substr(name.size() - 8) != "_test.cc") continue;
    const std::set<std::string> defined = tests_defined(*read_file(entry.path()));
    tests.insert(defined.begin(), defined.end());
  }
  return tests;
}

TEST(SeedMap, EveryUpstreamNameHasASymbolAndATest) {
  const std::set<std::string> tests = all_tests();
  ASSERT_GT(tests.size(), 300u);
  const std::optional<std::string> document = read_file(kRoot / "docs" / "seed-map.md");
  ASSERT_TRUE(document);
  const auto read = [](const std::string& path) { return read_file(kRoot / path); };
  for (const std::string& problem : check_seed_map(*document, upstream_names(), read, tests)) {
    ADD_FAILURE() << "docs/seed-map.md, " << problem;
  }
}

// "Suite.Name" in back quotes: two words that begin with capitals.
std::set<std::string> tests_named(const std::string& document) {
  std::set<std::string> names;
  for (std::size_t at = document.find('`'); at != std::string::npos;) {
    const std::size_t end = document.find('`', at + 1);
    if (end == std::string::npos) break;
    const std::string code = document.substr(at + 1, end - at - 1);
    const std::size_t dot = code.find('.');
    const bool words = std::all_of(code.begin(), code.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.';
    });
    const auto capital = [&](std::size_t i) {
      return i < code.size() && std::isupper(static_cast<unsigned char>(code[i])) != 0;
    };
    if (words && dot != std::string::npos && capital(0) && capital(dot + 1)) names.insert(code);
    at = document.find('`', end + 1);
  }
  return names;
}

TEST(SeedMap, TestsNamedOnTheOptimizersPageExist) {
  EXPECT_EQ(tests_named("`A.B` and `a.B`, `Suite.Name`, `engine/optim/A.h` `C.D E`"),
            (std::set<std::string>{"A.B", "Suite.Name"}));
  const std::optional<std::string> document = read_file(kRoot / "docs" / "optimizer.md");
  ASSERT_TRUE(document);
  const std::set<std::string> tests = all_tests();
  std::set<std::string> names = tests_named(*document);
  EXPECT_EQ(names.erase("Suite.Name"), 1u);
  EXPECT_GT(names.size(), 30u);
  for (const std::string& name : names)
    EXPECT_EQ(tests.count(name), 1u) << "docs/optimizer.md names " << name;
}

}  // namespace
}  // namespace plumbline::test
