// All 4,928 combinations of torch's index (tests/oracles/torch_pipelining/generated/index.tsv): rows at every stage of
// torch's lowering by SHA-256, counts, and what is refused. And 600 random orders through every pass, row by row.
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "engine/schedule/communicate.h"
#include "engine/schedule/python_set.h"
#include "engine/schedule/torch_orders.h"
#include "engine/schedule/torch_passes.h"
#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"
#include "tests/support/sha256.h"

namespace plumbline {
namespace {

using nlohmann::json;

// "a" of a line by the header's column names.
using Line = std::map<std::string, std::string>;

std::vector<Line> index_lines() {
  std::istringstream text(test::read_data("oracles/torch_pipelining/generated/index.tsv"));
  const auto fields = [](const std::string& line) {
    std::vector<std::string> out(1);
    for (const char c : line) {
      if (c == '\t') {
        out.emplace_back();
      } else {
        out.back() += c;
      }
    }
    return out;
  };
  std::string line;
  std::getline(text, line);
  const std::vector<std::string> names = fields(line);
  std::vector<Line> out;
  while (std::getline(text, line)) {
    const std::vector<std::string> values = fields(line);
    out.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) out.back()[names[i]] = i < values.size() ? values[i] : "";
  }
  return out;
}

std::string digest(const Schedule& schedule, const IdleCells* idle = nullptr) {
  return test::sha256(print_schedule_csv(schedule, false, idle));
}

int cells(const Schedule& schedule) {
  int count = 0;
  for (const Action& action : schedule.actions) count += action.paired != 0 ? 0 : 1;
  return count;
}

// The rows that 2.14.1 lists for 1F1B: the last rank's forwards numbered one too high.
Schedule with_upstream_defect(Schedule schedule) {
  for (std::size_t i = schedule.offsets[schedule.offsets.size() - 2]; i < schedule.actions.size(); ++i)
    if (schedule.actions[i].kind == ActionKind::kForward) ++schedule.actions[i].microbatch;
  return schedule;
}

std::string label_of(const Line& line) {
  return line.at("schedule") + " pp " + line.at("pp") + " local " + line.at("local") + " mb " + line.at("mb");
}

struct Tally {
  int lines = 0;
  std::map<std::string, int> same;  // by stage of lowering
  int refused = 0;
};

void compare_rows(const Line& line, const TorchRows& rows, Tally& tally) {
  const std::string label = label_of(line);
  const auto same = [&](const char* column, const std::string& got) {
    EXPECT_EQ(got, line.at(column)) << label << " " << column;
    tally.same[column] += got == line.at(column) ? 1 : 0;
  };
  const bool one_f_one_b = line.at("schedule") == "1F1B";
  same("sha_compute", digest(one_f_one_b ? with_upstream_defect(rows.schedule) : rows.schedule, &rows.idle));
  EXPECT_EQ(std::to_string(cells(rows.schedule)), line.at("n_compute")) << label;
  const Result<Schedule> comms = torch_lowered_rows(rows.schedule, false);
  ASSERT_TRUE(comms) << label << comms.error().text();
  same("sha_comms", digest(*comms));
  EXPECT_EQ(std::to_string(cells(*comms)), line.at("n_lowered")) << label;
  const Result<Schedule> deferred = torch_lowered_rows(rows.schedule, true);
  ASSERT_TRUE(deferred) << label << deferred.error().text();
  same("sha_comms_deferred", digest(*deferred));
  const Result<DryRun> run = dry_run(*comms);
  ASSERT_TRUE(run) << label << run.error().text();
  same("sha_sim", digest(run->schedule, &run->idle));
  EXPECT_EQ(std::to_string(run->steps), line.at("sim_steps")) << label;
  EXPECT_EQ(std::to_string(dry_run(*deferred).value().steps), line.at("sim_deferred_steps")) << label;
  if (!line.at("sha_merged").empty()) same("sha_merged", digest(merge_backwards(rows.schedule)));
}

TEST(TorchIndex, EveryCombinationAtEveryStageOfLowering) {
  Tally tally;
  for (const Line& line : index_lines()) {
    ++tally.lines;
    GeneratorArgs args;
    args.ranks = std::stoi(line.at("pp"));
    args.chunks = std::stoi(line.at("local"));
    args.microbatches = std::stoi(line.at("mb"));
    const Result<TorchRows> rows = torch_compute_rows(line.at("schedule"), args);
    // "error:validate" is 1F1B's defect, whose repaired rows are recorded.
    EXPECT_EQ(rows.has_value(), line.at("status") != "error:construct") << label_of(line);
    if (rows) {
      compare_rows(line, *rows, tally);
    } else {
      ++tally.refused;
    }
  }
  EXPECT_EQ(tally.lines, 4928);
  EXPECT_EQ(tally.refused, 2179);
  const std::map<std::string, int> expected = {{"sha_compute", 2749},
                                               {"sha_comms", 2749},
                                               {"sha_comms_deferred", 2749},
                                               {"sha_sim", 2749},
                                               {"sha_merged", 909}};
  EXPECT_EQ(tally.same, expected);
}

std::string joined(const json& rows) {
  std::string text;
  for (const json& row : rows) text += row.get<std::string>() + "\n";
  return text;
}

TEST(TorchIndex, RandomOrdersThroughEveryPass) {
  const int lines = test::for_each_line(
      "oracles/torch_pipelining/generated/random_lowering.jsonl.gz", [](const json& line) {
        IdleCells idle;
        const Result<Schedule> order = parse_schedule_csv(joined(line["compute"]), "random", {}, &idle);
        ASSERT_TRUE(order) << order.error().text();
        EXPECT_EQ(print_schedule_csv(*order, false, &idle), joined(line["compute"]));
        EXPECT_EQ(test::findings_text(validate_schedule(*order)), "");
        EXPECT_EQ(print_schedule_csv(merge_backwards(*order)), joined(line["merged"]));
        const Schedule sharded = add_sharding(*order, line["max_active_stages"]).value();
        EXPECT_EQ(print_schedule_csv(sharded), joined(line["unshard"]));
        const Schedule reduced = add_reductions(sharded);
        EXPECT_EQ(print_schedule_csv(reduced), joined(line["reduce_grad"]));
        const Schedule comms = add_communication(reduced).value();
        EXPECT_EQ(print_schedule_csv(comms), joined(line["comms"]));
        EXPECT_EQ(print_schedule_csv(defer_receives(comms).value()), joined(line["comms_deferred"]));
        const DryRun run = dry_run(comms).value();
        EXPECT_EQ(print_schedule_csv(run.schedule, false, &run.idle), joined(line["sim"]));
        EXPECT_EQ(run.steps, line["sim_steps"].get<int>());
      });
  EXPECT_EQ(lines, 600);
}

TEST(TorchIndex, Sha256OfKnownTexts) {
  EXPECT_EQ(test::sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(test::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// What CPython 3.11 lists after these histories; a negative number removes.
TEST(TorchIndex, PythonListsSmallIntegersByTheirPlace) {
  const auto list = [](const std::vector<int>& history) {
    PythonSet set;
    for (const int value : history) {
      if (value < 0) {
        set.remove(-value);
      } else {
        set.add(value);
      }
      EXPECT_EQ(set.has(std::abs(value)), value >= 0);
    }
    return set.values();
  };
  using Values = std::vector<int>;
  EXPECT_EQ(list({9, 2, 17, 1}), (Values{9, 2, 17, 1}));
  EXPECT_EQ(list({9, 2, 17, 1, -9, 25}), (Values{25, 2, 17, 1}));
  EXPECT_EQ(list({2, 5, -5, 4, -2, 5}), (Values{5, 4}));
  EXPECT_EQ(list({40, 8, 16, 24, 32, 7}), (Values{32, 7, 40, 8, 16, 24}));
}

TEST(TorchPasses, WhatTheyRefuse) {
  const Schedule comms =
      parse_schedule_csv("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "x").value();
  EXPECT_NE(add_sharding(comms).error().message.find("0SEND_F0"), std::string::npos);
  EXPECT_FALSE(add_sharding(test::generate("1f1b", {2, 1, 2}).value(), 0));
  const auto defer = [](const char* text) { return defer_receives(parse_schedule_csv(text, "x").value()); };
  EXPECT_NE(defer("0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n").error().message.find("0RECV_B0"),
            std::string::npos);
  EXPECT_NE(
      defer("0F0,0SEND_F0,0RECV_B0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n").error().message.find("twice"),
      std::string::npos);
  const auto stuck =
      dry_run(parse_schedule_csv("0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "x").value());
  EXPECT_NE(stuck.error().message.find("rank 0 at 0RECV_B0, rank 1 at 1RECV_F0"), std::string::npos);
  EXPECT_NE(torch_compute_rows("1F1b", {4, 1, 2}).error().message.find("stages (4)"), std::string::npos);
  EXPECT_NE(torch_compute_rows("ZBV", {4, 2, 8}).error().message.find("known:"), std::string::npos);
}

}  // namespace
}  // namespace plumbline
