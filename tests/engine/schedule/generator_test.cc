#include "engine/schedule/generator.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

TEST(Generators, EveryFileIsRegisteredAndDescribed) {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) {
    names.push_back(generator.name);
    for (const std::string& text :
         {generator.summary, generator.constraints, generator.bubble, generator.memory, generator.source}) {
      EXPECT_FALSE(text.empty()) << generator.name;
    }
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"1f1b", "forward-only", "gpipe", "interleaved", "interleaved-2022"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  // A file that registers a generator but that the build's list has missed would be dropped by the
  // linker.
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::data_path("../engine/schedule"))) {
    if (entry.path().extension() != ".cc") continue;
    const std::string source = test::read_data("../engine/schedule/" + entry.path().filename().string());
    if (source.find("\nRegisterGenerator register_") != std::string::npos) ++files;
  }
  EXPECT_EQ(files, names.size());
}

TEST(Generators, UnknownNameSuggestsTheNearest) {
  const Result<const Generator*> got = find_generator("interleavd");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kUsage);
  EXPECT_NE(got.error().message.find("did you mean 'interleaved'"), std::string::npos) << got.error().message;
  EXPECT_NE(got.error().message.find("gpipe"), std::string::npos);
}

TEST(Generators, RefuseSizesBelowOneAndAboveTheLimits) {
  for (const Generator& generator : generators()) {
    for (const GeneratorArgs& args :
         {GeneratorArgs{0, 1, 1}, GeneratorArgs{1, 0, 1}, GeneratorArgs{1, 1, 0}, GeneratorArgs{-1, -1, -1},
          GeneratorArgs{1, 1, kMaxMicrobatches + 1}, GeneratorArgs{kMaxStages + 1, 1, kMaxStages + 1},
          GeneratorArgs{2048, 1, kMaxMicrobatches}}) {
      const Result<Schedule> got = generator.make(args);
      ASSERT_FALSE(got) << generator.name;
      EXPECT_EQ(got.error().code, ErrorCode::kConfig);
      EXPECT_NE(got.error().message.find(generator.name), std::string::npos) << got.error().message;
    }
  }
  EXPECT_FALSE(test::generate("gpipe", {4, 2, 8}));
  EXPECT_FALSE(test::generate("1f1b", {4, 2, 8}));
  EXPECT_FALSE(test::generate("interleaved-2022", {2, 2, 4, 4}));
}

// The pictures at the top of the generators' files, as orders.
TEST(Generators, SmallOrders) {
  const auto text = [](const char* name, const GeneratorArgs& args) {
    return print_schedule_csv(test::generate(name, args).value());
  };
  EXPECT_EQ(text("gpipe", {2, 1, 2}), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_EQ(text("gpipe", {2, 1, 2, 0, true}), "0F0,0F1\n1F0,1F1\n");
  EXPECT_EQ(
      text("1f1b", {3, 1, 4}),
      "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
  EXPECT_EQ(text("1f1b", {3, 1, 1}), "0F0,0B0\n1F0,1B0\n2F0,2B0\n");
  EXPECT_EQ(text("1f1b", {3, 1, 2, 0, true}), "0F0,0F1\n1F0,1F1\n2F0,2F1\n");
  EXPECT_EQ(text("interleaved", {2, 2, 4}),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
  EXPECT_EQ(text("interleaved-2022", {2, 2, 2}),
            "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n");
  EXPECT_EQ(text("forward-only", {2, 1, 1}), "0F0\n1F0\n");
  EXPECT_EQ(text("forward-only", {2, 2, 2}), "0F0,0F1,2F0,2F1\n1F0,1F1,3F0,3F1\n");
}

TEST(Generators, MicrobatchesBelowRanksAreLegalWherePlain) {
  for (const char* name : {"gpipe", "1f1b", "forward-only"}) {
    for (int m = 1; m < 4; ++m) {
      const Result<Schedule> got = test::generate(name, {4, 1, m});
      ASSERT_TRUE(got) << got.error().text();
      EXPECT_TRUE(validate_schedule(*got).empty());
    }
  }
}

// One allocation an array, none an action: the arrays are exactly as large as what is in them.
TEST(Generators, LargeSchedulesFillTheirReservation) {
  const Result<Schedule> got = test::generate("interleaved", {8, 4, 512});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->actions.size(), 8U * 4U * 512U * 2U);
  EXPECT_EQ(got->actions.capacity(), got->actions.size());
  EXPECT_TRUE(validate_schedule(*got).empty());
}

}  // namespace
}  // namespace plumbline
