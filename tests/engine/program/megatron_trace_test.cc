// Every recorded Megatron call sequence of the modes that this lowering covers, read off the lowered Program.
#include <map>

#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "engine/program/trace.h"
#include "tests/engine/program/config.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

struct Counts {
  int compared = 0;
  int refused = 0;
  int other_mode = 0;
};

ScheduleKind kind_of(const nlohmann::json& line) {
  if (line.at("sched") == "1f1b")
    return line.at("mode") == "fwd" ? ScheduleKind::kForwardOnly : ScheduleKind::kOneFOneB;
  return line.at("alg") == "seed" ? ScheduleKind::kInterleaved2022 : ScheduleKind::kInterleaved;
}

// The schedule a line ran, forward-only forms included, on the kind's own algorithm.
Result<Program> program_of_line(const nlohmann::json& line) {
  const int pp = line.at("pp");
  const int chunks = line.at("vp").is_null() ? 1 : line.at("vp").get<int>();
  const int microbatches = line.at("m");
  const int group = line.contains("g") && !line.at("g").is_null() ? line.at("g").get<int>() : 0;
  RunConfig config = test::config_of(kind_of(line), pp, chunks, microbatches, group);
  const std::string mode = line.at("mode");
  // Overlap has nothing to overlap with in a forward-only run: its calls are the separate ones.
  config.schedule.p2p = mode == "fwd_flush"                          ? P2pStyle::kFlush
                        : mode == "unbatch" || mode == "fwd_overlap" ? P2pStyle::kSeparate
                                                                     : P2pStyle::kBatched;
  LowerOptions options;
  options.tail = StepTail::kSchedule;
  options.call_marks = true;
  if (mode.rfind("fwd", 0) != 0 || config.schedule.kind == ScheduleKind::kForwardOnly)
    return program_of(config, default_sizes(config), options);
  const auto schedule = evaluation_schedule_of(config);
  if (!schedule) return tl::unexpected(schedule.error());
  return lower(config, *schedule, default_sizes(config), options);
}

Counts compare_file(const std::string& file, int lines) {
  Counts counts;
  const int seen = test::for_each_line("oracles/megatron/" + file, [&](const nlohmann::json& line) {
    const std::string mode = line.at("mode");
    if (mode != "batch" && mode != "unbatch" && mode.rfind("fwd", 0) != 0) {
      ++counts.other_mode;
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
  EXPECT_EQ(counts.compared, 928);
  EXPECT_EQ(counts.refused, 140);
}

TEST(MegatronTrace, January2022) {
  const Counts counts = compare_file("schedule_ops_seed_2022.jsonl.gz", 372);
  EXPECT_EQ(counts.compared, 316);
  EXPECT_EQ(counts.refused, 56);
}

}  // namespace
}  // namespace plumbline
