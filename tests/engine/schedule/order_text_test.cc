// Orders as other projects write them, read and written: DeepSpeed's streams, Zero Bubble's strings, ColossalAI's
// nodes and Megatron's integers, line by line as recorded (tests/oracles).
#include "engine/schedule/order_text.h"

#include <map>

#include <gtest/gtest.h>

#include "engine/schedule/deepspeed.h"
#include "engine/schedule/torch_passes.h"
#include "tests/engine/schedule/orders.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

using nlohmann::json;

std::string lines_of(const json& rows) {
  std::string text;
  for (const json& row : rows) text += row.get<std::string>() + "\n";
  return text;
}

Schedule computations(const Schedule& schedule) {
  test::Rows rows = test::rows_of(schedule);
  for (auto& row : rows) std::erase_if(row, [](const Action& action) { return !is_compute(action.kind); });
  return test::with_rows(schedule, rows);
}

TEST(OrderText, DeepSpeedStreamsAreDeepSpeeds) {
  std::map<std::string, int> compared;
  const int lines = test::for_each_line("oracles/schedules/deepspeed.jsonl.gz", [&](const json& line) {
    const bool train = line["gen"] == "deepspeed.TrainSchedule";
    const std::string label =
        line["gen"].get<std::string>() + " " + line["p"].dump() + " " + line["m"].dump();
    for (int rank = 0; rank < line["p"].get<int>(); ++rank)
      EXPECT_EQ(deepspeed_stream(line["p"], rank, line["m"], train),
                line["steps"][static_cast<std::size_t>(rank)].get<std::string>())
          << label;
    const Result<Schedule> read = parse_deepspeed(lines_of(line["steps"]), "steps");
    ASSERT_TRUE(read) << label << read.error().text();
    EXPECT_EQ(test::findings_text(validate_schedule(*read)), "") << label;
    const Schedule own = test::generate(train ? "1f1b" : "forward-only", {line["p"], 1, line["m"]}).value();
    EXPECT_EQ(test::rows_of(computations(*read)), test::rows_of(own)) << label;
    EXPECT_TRUE(dry_run(*read)) << label;
    EXPECT_EQ(print_deepspeed(own).value(), lines_of(line["steps"])) << label;
    ++compared[line["gen"]];
  });
  EXPECT_EQ(lines, 192);
  EXPECT_EQ(compared, (std::map<std::string, int>{{"deepspeed.InferenceSchedule", 96},
                                                  {"deepspeed.TrainSchedule", 96}}));
}

TEST(OrderText, DeepSpeedHasOneOrder) {
  const Schedule other = test::generate("gpipe", {2, 1, 3}).value();
  EXPECT_NE(print_deepspeed(other).error().message.find("'1f1b'"), std::string::npos);
}

// ColossalAI's nodes hold sends and receives; a dry run of them ends.
TEST(OrderText, ColossalAiNodes) {
  int compared = 0;
  const int lines = test::for_each_line("oracles/schedules/colossalai_zbv.jsonl.gz", [&](const json& line) {
    const Result<Schedule> read = parse_zero_bubble(lines_of(line["nodes"]), "nodes");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(test::findings_text(validate_schedule(*read)), "");
    EXPECT_EQ(read->microbatches, line["m"].get<int>());
    const Result<DryRun> run = dry_run(*read);
    EXPECT_TRUE(run) << run.error().text();
    const Schedule order = computations(*read);
    EXPECT_EQ(test::expect_evaluation(
                  order, json{{"cost", line["cost"]}, {"makespan", line["eval"]["makespan"]}}, "nodes"),
              1);
    const std::string text = print_zero_bubble(order).value();
    EXPECT_EQ(test::rows_of(parse_zero_bubble(text, "again").value()), test::rows_of(order));
    ++compared;
  });
  EXPECT_EQ(lines, 58);
  EXPECT_EQ(compared, 58);
}

TEST(OrderText, MegatronIntegers) {
  std::map<std::string, std::vector<json>> groups;  // ranks of one configuration
  const int lines = test::for_each_line("oracles/megatron/schedule_order.jsonl.gz", [&](const json& line) {
    groups[line["pp"].dump() + " " + line["vp"].dump() + " " + line["g"].dump() + " " + line["m"].dump()]
        .push_back(line);
  });
  int compared = 0;
  for (const auto& [label, ranks] : groups) {
    for (const char* field : {"order", "moe_order_wgrad0", "moe_order_wgrad1"}) {
      if (std::any_of(ranks.begin(), ranks.end(), [&](const json& line) { return !line.contains(field); }))
        continue;
      std::string text;
      for (const json& line : ranks) {
        const std::string row = line[field].dump();
        text += row.substr(1, row.size() - 2) + "\n";
      }
      const Result<Schedule> read = parse_megatron_order(text, field);
      ASSERT_TRUE(read) << label << read.error().text();
      EXPECT_EQ(print_megatron_order(*read).value(), text) << label << field;
      if (std::string(field) != "order") continue;
      EXPECT_EQ(test::findings_text(validate_schedule(*read)), "") << label;
      const json& first = ranks.front();
      if (first["vp"] == 1) continue;
      GeneratorArgs args{first["pp"], first["vp"], first["m"], first["g"]};
      EXPECT_EQ(test::rows_of(*read), test::rows_of(test::generate("interleaved", args).value())) << label;
      ++compared;
    }
  }
  EXPECT_EQ(lines, 408);
  EXPECT_EQ(compared, 72);
}

// Every generator's order that a notation can say comes back from it.
TEST(OrderText, EveryGeneratorRoundTripsOrIsRefused) {
  std::map<std::string, int> printed;
  for (const Generator& generator : generators()) {
    for (const int chunks : {1, 2}) {
      const Result<Schedule> schedule = test::generate(generator.name, {4, chunks, 8});
      if (!schedule) continue;
      const auto placement = schedule->rank_of_stage == wave_placement(schedule->stages, 4) && chunks == 2
                                 ? Placement::kV
                                 : Placement::kLoop;
      if (const Result<std::string> text = print_zero_bubble(*schedule)) {
        EXPECT_EQ(test::rows_of(parse_zero_bubble(*text, "x", placement).value()), test::rows_of(*schedule))
            << generator.name << *text;
        ++printed["zero-bubble"];
      }
      if (const Result<std::string> text = print_megatron_order(*schedule)) {
        EXPECT_EQ(test::rows_of(parse_megatron_order(*text, "x", placement).value()),
                  test::rows_of(*schedule))
            << generator.name << *text;
        ++printed["megatron"];
      }
    }
  }
  EXPECT_GT(printed["zero-bubble"], 20);
  EXPECT_GT(printed["megatron"], 10);
}

TEST(OrderText, WhatBMeansFollowsFromTheText) {
  EXPECT_EQ(test::order_text(parse_zero_bubble("F0 B0\n", "x").value()),
            (std::vector<std::string>{"0F0 0B0"}));
  EXPECT_EQ(test::order_text(parse_zero_bubble("F0 B0 W0\n", "x").value()),
            (std::vector<std::string>{"0F0 0I0 0W0"}));
  EXPECT_EQ(test::order_text(parse_zero_bubble("F0 F1 B0 BW1 W0\n", "x").value()),
            (std::vector<std::string>{"0F0 0F1 0I0 0B1 0W0"}));
  EXPECT_EQ(test::order_text(parse_zero_bubble("F0.0 F0.1 B0.1 B0.0\nF0.0 F0.1 B0.1 B0.0\n", "x").value()),
            (std::vector<std::string>{"0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"}));
}

void refused(const Result<Schedule>& read, const std::string& place, const std::string& word) {
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().where.text(), place) << read.error().text();
  EXPECT_NE(read.error().message.find(word), std::string::npos) << read.error().text();
}

TEST(OrderText, ErrorsNameLineAndColumn) {
  refused(parse_zero_bubble("F0 B0\nF0 X0\n", "o"), "o:2:4", "unknown kind 'X'");
  refused(parse_zero_bubble("F0 B\n", "o"), "o:1:4", "no number");
  refused(parse_zero_bubble("F0 F1.2\n", "o"), "o:1:4", "a V has two");
  refused(parse_zero_bubble("F0 F:1\n", "o"), "o:1:4", "numbers");
  refused(parse_zero_bubble("F0 F9999999\n", "o"), "o:1:4", "limits");
  refused(parse_zero_bubble("F0 F2\n", "o"), "o", "microbatch 1");
  refused(parse_zero_bubble("\n", "o"), "o", "no step");
  refused(parse_megatron_order("1,-1\n1,x\n", "o"), "o:2:3", "is no step");
  refused(parse_megatron_order("1,0\n", "o"), "o:1:3", "is no step");
  refused(parse_megatron_order("1.5\n", "o"), "o:1:1", "is no step");
  refused(parse_deepspeed("L0,F0;B1\n", "o"), "o:1:7", "holds no output");
  refused(parse_deepspeed("L0,F0;SA0\n;RA0,F1\n", "o"), "o:2:6", "holds no input");
  refused(parse_deepspeed("L0,F0;B0\nRA0,F0\n", "o"), "o:1:7", "gradient has not been received");
  refused(parse_deepspeed("L0,X0\n", "o"), "o:1:4", "no instruction");
  refused(parse_deepspeed("L0,R0\n", "o"), "o:1:4", "no buffer");
  refused(parse_deepspeed("", "o"), "o", "0 rows");
}

}  // namespace
}  // namespace plumbline
