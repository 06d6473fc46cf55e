// No report of family L is without a test named after it, and every id stands in a comment of its tests' file.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/engine/optim/seed_map.h"
#include "tests/support/oracle.h"

namespace plumbline::test {
namespace {

// "NVIDIA-NeMo/Megatron-Bridge#5591 (...)" -> "NVIDIANeMoMegatronBridge5591".
std::string test_name_of(const std::string& source) {
  std::string out;
  bool upper = true;
  bool number = false;
  for (const char c : source) {
    const auto u = static_cast<unsigned char>(c);
    if (number && std::isdigit(u) == 0) break;
    number = number || c == '#';
    if (std::isalnum(u) == 0) {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(u)) : c;
    upper = false;
  }
  return out;
}

bool starts_with_name(const std::string& test, const std::string& name) {
  return test.rfind(name, 0) == 0 &&
         (test.size() == name.size() || std::isdigit(static_cast<unsigned char>(test[name.size()])) == 0);
}

TEST(FamilyLCoverage, NamesOfSources) {
  EXPECT_EQ(test_name_of("NVIDIA-NeMo/Megatron-Bridge#5591"), "NVIDIANeMoMegatronBridge5591");
  EXPECT_EQ(test_name_of("pytorch/pytorch#98828 (fix #98876)"), "PytorchPytorch98828");
  EXPECT_TRUE(starts_with_name("HpcaitechColossalAI80AgreedOverflow", "HpcaitechColossalAI80"));
  EXPECT_FALSE(starts_with_name("HpcaitechColossalAI801Agreed", "HpcaitechColossalAI80"));
}

TEST(FamilyLCoverage, EveryReportHasATest) {
  std::map<std::string, std::set<std::string>> tests_of_id;  // id -> FamilyL tests of the files that name it
  const std::filesystem::path root(PLUMBLINE_TEST_DATA);
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string file = entry.path().filename().string();
    if (!entry.is_regular_file() || file.size() < 8 || file.substr(file.size() - 8) != "_test.cc") continue;
    if (file == "family_l_test.cc") continue;
    std::ifstream stream(entry.path());
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    std::set<std::string> own;
    for (const std::string& test : tests_defined(text)) {
      if (test.rfind("FamilyL.", 0) == 0) own.insert(test.substr(8));
    }
    if (own.empty()) continue;
    all.insert(own.begin(), own.end());
    for (std::size_t at = text.find(" L"); at != std::string::npos; at = text.find(" L", at + 1)) {
      const std::string id = text.substr(at + 1, 3);
      if (id.size() == 3 && std::isdigit(static_cast<unsigned char>(id[1])) != 0)
        tests_of_id[id].insert(own.begin(), own.end());
    }
    if (const std::size_t at = text.find("(L"); at != std::string::npos)
      tests_of_id[text.substr(at + 1, 3)].insert(own.begin(), own.end());
  }
  std::set<std::string> used;
  const int lines = for_each_line("oracles/public_reports/family_l.jsonl", [&](const nlohmann::json& line) {
    const std::string id = line["id"], name = test_name_of(line["source"]);
    int found = 0;
    for (const std::string& test : tests_of_id[id]) {
      if (!starts_with_name(test, name)) continue;
      used.insert(test);
      ++found;
    }
    EXPECT_GT(found, 0) << id << ": no test FamilyL." << name << "... in a file that names " << id;
  });
  EXPECT_EQ(lines, 20);
  EXPECT_EQ(used, all) << "a FamilyL test that belongs to no report";
}

}  // namespace
}  // namespace plumbline::test
