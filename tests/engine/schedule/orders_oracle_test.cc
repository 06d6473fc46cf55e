// Generated orders against recorded ones, line by line (tests/oracles/schedules). The figures recorded with
// them are compared in evaluate_test.cc for the orders themselves; equal orders have equal figures.
#include <map>

#include <gtest/gtest.h>

#include "tests/engine/schedule/orders.h"

namespace plumbline {
namespace {

using nlohmann::json;

// Recorded name -> ours.
const std::map<std::string, std::string> kNames = {
    {"1f1b", "1f1b"},
    {"gpipe", "gpipe"},
    {"zb-h1", "zb-h1"},
    {"zb-h2", "zb-h2"},
    {"breadth-first", "breadth-first"},
    {"interleaved-1f1b", "interleaved"},
    {"group-interleaved", "group-interleaved"},
    {"jaxpp.Std1F1B", "1f1b"},
    {"jaxpp.GPipe", "gpipe"},
    {"jaxpp.Eager1F1B", "eager-1f1b"},
    {"jaxpp.ZeroBubble", "zb-h1"},
    {"jaxpp.Interleaved1F1B", "torch-interleaved"},
    {"jaxpp.KimiK2", "kimi-k2"},
};

GeneratorArgs args_of(const json& line) {
  GeneratorArgs args;
  args.ranks = line["p"];
  args.chunks = line["v"];
  args.microbatches = line["m"];
  args.group_size = line.value("group", 0);
  return args;
}

// Generates what the line records; returns false where the order differs.
void expect_order(const json& line, const std::string& name, const GeneratorArgs& args) {
  const std::string label = test::label_of(line);
  const Result<Schedule> got = test::generate(name, args);
  ASSERT_TRUE(got) << label << ": " << got.error().text();
  EXPECT_EQ(test::order_text(*got), line["order"].get<std::vector<std::string>>()) << label;
  EXPECT_EQ(test::findings_text(validate_schedule(*got)), "") << label;
  EXPECT_EQ(got->rank_of_stage, test::schedule_of_order(line).rank_of_stage) << label;
}

TEST(OrdersOracle, RecordedOrders) {
  std::map<std::string, int> compared;
  const int lines = test::for_each_line("oracles/schedules/orders.jsonl.gz", [&](const json& line) {
    const auto name = kNames.find(line["gen"]);
    if (name == kNames.end()) return;
    ++compared[line["gen"]];
    expect_order(line, name->second, args_of(line));
  });
  EXPECT_EQ(lines, 1740);
  const std::map<std::string, int> expected = {
      {"1f1b", 50},
      {"gpipe", 50},
      {"zb-h1", 33},
      {"zb-h2", 33},
      {"breadth-first", 81},
      {"interleaved-1f1b", 81},
      {"group-interleaved", 200},
  };
  EXPECT_EQ(compared, expected);
}

// JaxPP's InterleavedGPipe repeats backward 0 for ever (its records say so) and is not compared.
TEST(OrdersOracle, JaxPP) {
  std::map<std::string, int> compared;
  int evaluations = 0;
  const int lines = test::for_each_line("oracles/schedules/jaxpp.jsonl.gz", [&](const json& line) {
    const auto name = kNames.find(line["gen"]);
    if (name == kNames.end()) return;
    ++compared[line["gen"]];
    expect_order(line, name->second, args_of(line));
    const Schedule schedule = test::schedule_of_order(line);
    test::expect_peaks(schedule, line, test::label_of(line));
    for (const json& eval : line["evals"]) {
      EXPECT_EQ(test::expect_evaluation(schedule, eval, test::label_of(line)), 5);
      ++evaluations;
    }
  });
  EXPECT_EQ(lines, 497);
  const std::map<std::string, int> expected = {
      {"jaxpp.Std1F1B", 51},    {"jaxpp.GPipe", 51},           {"jaxpp.Eager1F1B", 51},
      {"jaxpp.ZeroBubble", 46}, {"jaxpp.Interleaved1F1B", 82}, {"jaxpp.KimiK2", 82},
  };
  EXPECT_EQ(compared, expected);
  EXPECT_GT(evaluations, 700);
}

// torch's classes -> ours. Its GPipe and 1F1B are Megatron's orders.
const std::map<std::string, std::string> kTorchNames = {
    {"GPipe", "gpipe"},
    {"1F1B", "1f1b"},
    {"Interleaved1F1B", "torch-interleaved"},
    {"LoopedBFS", "torch-looped-bfs"},
    {"InterleavedZeroBubble", "torch-interleaved-zb"},
};

std::string without_sharding(const Schedule& schedule) {
  test::Rows rows = test::rows_of(schedule);
  for (std::vector<Action>& row : rows) {
    row.erase(std::remove_if(row.begin(), row.end(), [](const Action& a) { return !is_compute(a.kind); }),
              row.end());
  }
  return print_schedule_csv(test::with_rows(schedule, rows));
}

// Computations only: idle cells say nothing here, and REDUCE_GRAD, which torch's GPipe and 1F1B rows end
// with, is the lowering's. 2.14.1 numbers the forwards of 1F1B's last rank from 1; the repaired rows are
// compared, its own are not valid (torch_test.cc). What torch refuses is refused.
TEST(OrdersOracle, Torch) {
  std::map<std::string, int> same;
  std::map<std::string, int> refused;
  const int lines =
      test::for_each_line("oracles/torch_pipelining/generated/schedules_small.jsonl", [&](const json& line) {
        const auto name = kTorchNames.find(line["schedule"]);
        if (name == kTorchNames.end()) return;
        GeneratorArgs args;
        args.ranks = line["pp"];
        args.chunks = line["local"];
        args.microbatches = line["mb"];
        const std::string label =
            name->second + " " + line["pp"].dump() + " " + line["local"].dump() + " " + line["mb"].dump();
        const Result<Schedule> got = test::generate(name->second, args);
        const bool repaired = line.contains("compute_repaired");
        if (!line["ok"].get<bool>() && !repaired) {
          ++refused[line["schedule"]];
          const bool legal_here =
              name->second == "1f1b";  // fewer microbatches than stages: Megatron runs that
          EXPECT_EQ(got.has_value(), legal_here) << label;
          return;
        }
        ASSERT_TRUE(got) << label << ": " << got.error().text();
        std::string csv;
        for (const json& row : line[repaired ? "compute_repaired" : "compute"])
          csv += row.get<std::string>() + "\n";
        EXPECT_EQ(print_schedule_csv(*got), without_sharding(parse_schedule_csv(csv, "torch").value()))
            << label;
        ++same[line["schedule"]];
      });
  EXPECT_EQ(lines, 252);
  const std::map<std::string, int> expected = {
      {"1F1B", 15}, {"GPipe", 21}, {"Interleaved1F1B", 42}, {"InterleavedZeroBubble", 42}, {"LoopedBFS", 42},
  };
  EXPECT_EQ(same, expected);
  EXPECT_EQ(refused, (std::map<std::string, int>{{"1F1B", 6}}));
}

}  // namespace
}  // namespace plumbline
