// Every recorded Megatron call sequence, in all modes, read off the lowered Program.
#include <map>

#include <gtest/gtest.h>

#include "engine/program/trace.h"
#include "tests/engine/program/megatron_lines.h"

namespace plumbline {
namespace {

struct Counts {
  int compared = 0;
  int refused = 0;
  int inexpressible =
      0;  // two p2p styles at once, or one chunk in the interleaved function: upstream stops too
};

Result<Program> program_of_line(const nlohmann::json& line) {
  const RunConfig config = test::config_of_line(line);
  const auto schedule = test::schedule_of_line(line, config);
  if (!schedule) return tl::unexpected(schedule.error());
  return lower(config, *schedule, default_sizes(config), {StepTail::kSchedule, true});
}

bool is_inexpressible(const nlohmann::json& line) {
  if (!line.contains("error")) return false;
  return line.at("mode") == "both" || line.at("error") == "NameError" || line.at("error") == "AssertionError";
}

Counts compare_file(const std::string& file, int lines) {
  Counts counts;
  const int seen = test::for_each_line("oracles/megatron/" + file, [&](const nlohmann::json& line) {
    if (is_inexpressible(line)) {
      ++counts.inexpressible;
      return;
    }
    const bool refused = line.contains("error") || (line.contains("guard") && line.at("guard") == "skipped");
    const auto program = program_of_line(line);
    const std::string what = line.dump().substr(0, 120);
    if (refused) {
      EXPECT_FALSE(program.has_value()) << what;
      ++counts.refused;
      return;
    }
    ASSERT_TRUE(program.has_value()) << what << "\n" << program.error().text();
    const TraceStyle style = line.at("alg") == "seed" ? TraceStyle::k2022 : TraceStyle::kCurrent;
    for (std::size_t rank = 0; rank < line.at("ranks").size(); ++rank) {
      ASSERT_EQ(megatron_trace(*program, rank, style), line.at("ranks")[rank].get<std::string>())
          << what << " rank " << rank;
    }
    ++counts.compared;
  });
  EXPECT_EQ(seen, lines);
  return counts;
}

TEST(MegatronTrace, PlainCurrent) {
  const Counts counts = compare_file("schedule_ops_1f1b_current.jsonl.gz", 145);
  EXPECT_EQ(counts.compared, 138);
}

TEST(MegatronTrace, Interleaved) {
  const Counts counts = compare_file("schedule_ops_interleaved_current.jsonl.gz", 1926);
  EXPECT_EQ(counts.compared, 1600);
  EXPECT_EQ(counts.refused, 250);
  EXPECT_EQ(counts.inexpressible, 76);
}

TEST(MegatronTrace, January2022) {
  const Counts counts = compare_file("schedule_ops_seed_2022.jsonl.gz", 372);
  EXPECT_EQ(counts.compared, 316);
  EXPECT_EQ(counts.refused, 56);
}

}  // namespace
}  // namespace plumbline
