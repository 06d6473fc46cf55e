// Every recorded line of Megatron's counting rules and of the compute orders it ran (tests/oracles/megatron).
#include "engine/schedule/megatron_order.h"

#include <gtest/gtest.h>

#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using nlohmann::json;

TEST(MegatronOrder, ScheduleTables) {
  const int lines = test::for_each_line("oracles/megatron/schedule_table.jsonl.gz", [](const json& line) {
    const ScheduleTable table = schedule_table(line["m"], line["vp"], line["g"]);
    ASSERT_EQ(table.microbatch, line["mb"].get<std::vector<std::int32_t>>()) << line.dump();
    ASSERT_EQ(table.chunk, line["chunk"].get<std::vector<std::int32_t>>()) << line.dump();
  });
  EXPECT_EQ(lines, 1848);
}

TEST(MegatronOrder, WarmupCounts) {
  int ranks = 0;
  const int lines = test::for_each_line("oracles/megatron/warmup_counts.jsonl.gz", [&](const json& line) {
    const bool interleaved = !line["vp"].is_null();
    const int chunks = interleaved ? line["vp"].get<int>() : 1;
    const int size = line["pp"];
    for (int rank = 0; rank < size; ++rank, ++ranks) {
      const std::size_t r = static_cast<std::size_t>(rank);
      const WarmupCounts got = warmup_counts(size, rank, chunks, interleaved, line["m"], line["g"],
                                             line["forward_only"], line["moe_overlap"]);
      ASSERT_EQ(got.total, line["total"].get<int>()) << line.dump();
      ASSERT_EQ(got.warmup, line["warmup"][r].get<int>()) << line.dump();
      ASSERT_EQ(got.remaining, line["remaining"][r].get<int>()) << line.dump();
      ASSERT_EQ(got.all_warmup, line["all_warmup"][r].get<int>() != 0) << line.dump();
    }
  });
  EXPECT_EQ(lines, 10716);
  EXPECT_GT(ranks, 80000);
}

// "F3.1" -> +3 of chunk 1; the computations of one rank's recorded step, in order. Every other event is left
// out.
std::vector<std::string> computations(const std::string& events) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = std::min(events.find(';', at), events.size());
    const std::string event = events.substr(at, end - at);
    at = end + 1;
    const bool compute =
        event.size() > 1 && (event[0] == 'F' || event[0] == 'B') && event[1] >= '0' && event[1] <= '9';
    if (compute) out.push_back(event.substr(0, event.find_first_not_of("0123456789.", 1)));
  }
  return out;
}

std::vector<std::string> computations(const Schedule& schedule, int rank) {
  std::vector<std::string> out;
  for (const Action& action : schedule.row(rank)) {
    out.push_back(std::string(action_kind_name(action.kind)) + std::to_string(action.microbatch) + "." +
                  std::to_string(action.stage / schedule.ranks));
  }
  return out;
}

GeneratorArgs args_of(const json& line) {
  GeneratorArgs args;
  args.ranks = line["pp"];
  args.chunks = line["vp"].is_null() ? 1 : line["vp"].get<int>();
  args.microbatches = line["m"];
  args.group_size = line.value("g", 0);
  args.forward_only = line["mode"].get<std::string>().starts_with("fwd");
  return args;
}

struct Tally {
  int equal = 0;
  int refused = 0;
};

// Compares one line with generator `name`; lines that upstream refuses for its sizes must be refused here
// too.
void compare(const json& line, const std::string& name, Tally* tally) {
  const GeneratorArgs args = args_of(line);
  const Result<Schedule> got = test::generate(name, args);
  const std::string error = line.value("error", "");
  if (error == "ValueError" || error == "RuntimeError" || line.contains("guard")) {
    ASSERT_FALSE(got) << line["pp"] << " " << line.dump().substr(0, 200);
    ASSERT_EQ(got.error().code, ErrorCode::kConfig);
    ++tally->refused;
    return;
  }
  ASSERT_TRUE(error.empty()) << line.dump().substr(0, 200);
  ASSERT_TRUE(got) << got.error().text() << line.dump().substr(0, 200);
  for (int rank = 0; rank < args.ranks; ++rank) {
    const std::string events = line["ranks"][static_cast<std::size_t>(rank)];
    ASSERT_EQ(computations(*got, rank), computations(events)) << line.dump().substr(0, 200);
  }
  if (args.forward_only) {
    Result<Schedule> same = test::generate("forward-only", args);
    if (name == "interleaved" || args.chunks == 1) {
      ASSERT_TRUE(same);
      ASSERT_EQ(same->actions, got->actions);
    }
  }
  ++tally->equal;
}

// Failures that depend on the p2p mode, not on sizes, and modes with an extra forward are not the generator's
// matter.
bool about_the_order(const json& line) {
  const std::string mode = line["mode"];
  if (mode.starts_with("moe") || mode == "both") return false;
  const std::string error = line.value("error", "");
  return error.empty() || error == "ValueError" || error == "RuntimeError";
}

TEST(MegatronOrder, PlainSchedule) {
  Tally tally;
  test::for_each_line("oracles/megatron/schedule_ops_1f1b_current.jsonl.gz", [&](const json& line) {
    if (line["mode"] != "overlap") compare(line, "1f1b", &tally);  // upstream refuses overlap here
  });
  EXPECT_EQ(tally.equal, 138);
}

TEST(MegatronOrder, InterleavedSchedule) {
  Tally tally;
  test::for_each_line("oracles/megatron/schedule_ops_interleaved_current.jsonl.gz", [&](const json& line) {
    if (about_the_order(line)) compare(line, "interleaved", &tally);
  });
  EXPECT_EQ(tally.equal, 200 * 4 + 172 * 2 + 128);
  EXPECT_EQ(tally.refused, 200);
}

TEST(MegatronOrder, SchedulesOf2022) {
  Tally plain;
  Tally interleaved;
  test::for_each_line("oracles/megatron/schedule_ops_seed_2022.jsonl.gz", [&](const json& line) {
    if (line["sched"] == "1f1b") compare(line, "1f1b", &plain);
    if (line["sched"] == "int") compare(line, "interleaved-2022", &interleaved);
  });
  EXPECT_EQ(plain.equal, 92);
  EXPECT_EQ(interleaved.equal, 224);
  EXPECT_EQ(interleaved.refused, 56);
}

// Chunk c of a forward is written c+1, of a backward -(c+1). Upstream takes one chunk for the plain schedule.
TEST(MegatronOrder, ChunkOrders) {
  const int lines = test::for_each_line("oracles/megatron/schedule_order.jsonl.gz", [](const json& line) {
    GeneratorArgs args{line["pp"], line["vp"], line["m"], line["g"], false};
    const Result<Schedule> got = test::generate(args.chunks == 1 ? "1f1b" : "interleaved", args);
    ASSERT_TRUE(got) << got.error().text();
    std::vector<int> order;
    int warmup = -1;
    for (const Action& action : got->row(line["rank"])) {
      const bool is_forward = action.kind == ActionKind::kForward;
      if (!is_forward && warmup < 0) warmup = static_cast<int>(order.size());
      order.push_back((action.stage / args.ranks + 1) * (is_forward ? 1 : -1));
    }
    ASSERT_EQ(order, line["order"].get<std::vector<int>>()) << line.dump().substr(0, 100);
    const bool steady = line["warmup"].get<int>() < args.chunks * args.microbatches;
    ASSERT_EQ(warmup, line["warmup"].get<int>() + (steady ? 1 : 0));
  });
  EXPECT_EQ(lines, 408);
}

TEST(MegatronOrder, RefusalsNameTheRule) {
  const auto message = [](const Status& status) { return status ? std::string() : status.error().message; };
  EXPECT_NE(message(check_interleaved(4, 2, 8, 3)).find("below the pipeline size 4"), std::string::npos);
  EXPECT_NE(message(check_interleaved(4, 2, 3, 0)).find("above the 3 microbatches"), std::string::npos);
  EXPECT_NE(message(check_interleaved(4, 2, 10, 4)).find("use 8 or 12"), std::string::npos);
  EXPECT_NE(message(check_interleaved_2022(4, 2, 3)).find("use 4 or 4"), std::string::npos);
  EXPECT_TRUE(check_interleaved(4, 2, 10, 5).has_value());
  EXPECT_TRUE(check_interleaved(3, 2, 9, 5).has_value());  // a last group of 4 is still a full round
}

}  // namespace
}  // namespace plumbline
