// Generated orders against recorded ones, line by line (tests/oracles/schedules). The figures recorded with
// them are compared in evaluate_test.cc for the orders themselves; equal orders have equal figures.
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "engine/schedule/generator_support.h"
#include "engine/schedule/v_auto_search.h"
#include "tests/engine/schedule/orders.h"

namespace plumbline {
namespace {

using nlohmann::json;

// Recorded name -> ours.
const std::map<std::string, std::string> kNames = {
    {"1f1b", "1f1b"},
    {"gpipe", "gpipe"},
    {"zb-h1", "zb-h1"},
    {"v-min", "v-min"},
    {"v-half", "v-half"},
    {"1f1b-v", "1f1b-v"},
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
    {"jaxpp.DualPipeV", "dualpipe-v-jaxpp"},
    {"zbv-handcrafted", "zb-v"},
    {"dualpipev", "dualpipe-v"},
    {"dualpipe", "dualpipe"},
    {"seq1f1b", "seq-1f1b"},
};

GeneratorArgs args_of(const json& line) {
  GeneratorArgs args;
  args.ranks = line["p"];
  args.chunks = line["v"];
  args.microbatches = line["m"];
  args.group_size = line.value("group", 0);
  args.slices = line.value("seq_splits", 1);
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
      {"v-min", 50},
      {"v-half", 50},
      {"1f1b-v", 50},
      {"seq1f1b", 62},
  };
  EXPECT_EQ(compared, expected);
}

GeneratorArgs searched_args(const json& line, std::int64_t held, std::int64_t freed_early) {
  GeneratorArgs args = args_of(line);
  const json& cost = line["gen_cost"];
  args.costs.forward = {cost["F"]};
  args.costs.input_grad = {cost["I"]};
  args.costs.weight_grad = {cost["W"]};
  args.costs.hop = cost["C"];
  args.activations.held = {held};
  args.activations.freed_early = {freed_early};
  args.activations.cap = {held * line["mem_limit"].get<std::int64_t>()};
  return args;
}

// The recorded runs count activations so that I and W give back half of one each.
TEST(OrdersOracle, ZeroBubbleHeuristics) {
  std::map<std::string, int> compared;
  test::for_each_line("oracles/schedules/orders.jsonl.gz", [&](const json& line) {
    const std::string name = line["gen"];
    if (name != "zb-auto" && name != "zbv-auto") return;
    ++compared[name];
    expect_order(line, name, searched_args(line, 2, 1));
  });
  EXPECT_EQ(compared, (std::map<std::string, int>{{"zb-auto", 750}, {"zbv-auto", 250}}));
}

// Computations of ColossalAI's get_v_schedule(), which lists transfers and the optimizer's validation
// between them. "F:1:3" is the forward of microbatch 3 in chunk 1.
std::vector<std::string> colossal_order(const json& line) {
  std::vector<std::string> rows;
  const int ranks = line["p"];
  for (int rank = 0; rank < ranks; ++rank) {
    std::istringstream nodes(line["nodes"][static_cast<std::size_t>(rank)].get<std::string>());
    std::string row;
    for (std::string node; nodes >> node;) {
      if (node[1] != ':') continue;  // SF, RPV, ...
      const char kind = node[0] == 'B' ? 'I' : node[0];
      row += (row.empty() ? "" : " ") + std::to_string(v_stage(ranks, rank, node[2] - '0')) + kind +
             node.substr(4);
    }
    rows.push_back(row);
  }
  return rows;
}

TEST(OrdersOracle, ColossalAI) {
  const int lines =
      test::for_each_line("oracles/schedules/colossalai_zbv.jsonl.gz", [](const json& recorded) {
        json line = recorded;
        line["order"] = colossal_order(line);
        line["v"] = 2;
        line["gen_cost"] = line["cost"];
        line["mem_limit"] = 2 * line["p"].get<int>();
        expect_order(line, "zbv-auto", searched_args(line, 2, 1));
        const Schedule schedule = test::schedule_of_order(line);
        test::expect_peaks(schedule, line, test::label_of(line), false);
        json eval = line["eval"];
        eval["cost"] = line["cost"];
        EXPECT_EQ(test::expect_evaluation(schedule, eval, test::label_of(line)), 5);
      });
  EXPECT_EQ(lines, 58);
}

TEST(OrdersOracle, HandMadeV) {
  int evaluations = 0;
  const int lines = test::for_each_line("oracles/schedules/zbv_handcrafted.jsonl.gz", [&](const json& line) {
    expect_order(line, "zb-v", args_of(line));
    const Schedule schedule = test::schedule_of_order(line);
    test::expect_peaks(schedule, line, test::label_of(line));
    for (const json& eval : line["evals"]) {
      EXPECT_EQ(test::expect_evaluation(schedule, eval, test::label_of(line)), 5);
      ++evaluations;
    }
  });
  EXPECT_EQ(lines, 41);
  EXPECT_EQ(evaluations, 6 * 41);
}

// Driven through the real step(); idle time of every rank too, for pairs of other cost than their halves.
TEST(OrdersOracle, DualPipe) {
  std::map<std::string, int> compared;
  int figures = 0;
  const int lines = test::for_each_line("oracles/schedules/dualpipe.jsonl.gz", [&](const json& line) {
    const Schedule schedule = test::schedule_of_order(line);
    EXPECT_EQ(test::findings_text(validate_schedule(schedule)), "") << test::label_of(line);
    test::expect_peaks(schedule, line, test::label_of(line));
    if (line.contains("evals")) {
      for (const json& eval : line["evals"])
        figures += test::expect_evaluation(schedule, eval, test::label_of(line));
    }
    const auto name = kNames.find(line["gen"]);
    if (name == kNames.end()) return;
    ++compared[line["gen"]];
    expect_order(line, name->second, args_of(line));
  });
  EXPECT_EQ(lines, 74);
  EXPECT_EQ(compared, (std::map<std::string, int>{{"dualpipe", 42}, {"dualpipev", 32}}));
  EXPECT_GT(figures, 2000);
}

// Lines with an error record that the original crashes when no block fits; ours says so.
TEST(OrdersOracle, VBuildingBlocks) {
  int compared = 0;
  int refused = 0;
  const int lines =
      test::for_each_line("oracles/schedules/v_building_blocks.jsonl.gz", [&](const json& recorded) {
        json line = recorded;
        line["v"] = 2;
        GeneratorArgs args = args_of(line);
        args.activations.cap = {line["cap"]};
        if (line.contains("error")) {
          const json cost = line["cost"];
          args.costs.forward = {cost[0]};
          args.costs.input_grad = {cost[1]};
          args.costs.weight_grad = {cost[2]};
          args.costs.hop = cost[3];
          EXPECT_FALSE(test::generate("v-auto", args)) << test::label_of(line);
          ++refused;
          return;
        }
        line["gen_cost"] = line["cost"];
        line["mem_limit"] = line["cap"];
        args = searched_args(line, 1, 0);
        expect_order(line, "v-auto", args);
        const Schedule schedule = test::schedule_of_order(line);
        test::expect_peaks(schedule, line, test::label_of(line), false);
        json eval = line["eval"];
        eval["cost"] = line["cost"];
        EXPECT_EQ(test::expect_evaluation(schedule, eval, test::label_of(line)), 5);
        std::map<std::string, int> frontier;
        for (const auto& [peak, idle] :
             search_v_blocks(args, line["cap"], VAutoGoal::kMap).idle_slots_of_peak)
          frontier[std::to_string(peak)] = idle;
        EXPECT_EQ(json(frontier), line["mem_to_bubble_slots"]) << test::label_of(line);
        ++compared;
      });
  EXPECT_EQ(lines, 124);
  EXPECT_EQ(compared, 89);
  EXPECT_EQ(refused, 35);
}

// Microbatches go to the pipelines in turn. Records marked incomplete, where the generator stops early, are
// no oracle.
TEST(OrdersOracle, Chimera) {
  int compared = 0;
  int incomplete = 0;
  const int lines = test::for_each_line("oracles/schedules/chimera.jsonl.gz", [&](const json& recorded) {
    if (recorded.contains("incomplete")) {
      ++incomplete;
      return;
    }
    const std::string name = recorded["pipelines"] == 4 ? "chimera-2-pairs" : "chimera";
    const std::string label = name + " " + recorded["p"].dump() + " " + recorded["m"].dump();
    const Result<Schedule> got = test::generate(name, {recorded["p"], 1, recorded["m"]});
    ASSERT_TRUE(got) << label << got.error().text();
    EXPECT_EQ(test::order_text(*got), recorded["order"].get<std::vector<std::string>>()) << label;
    EXPECT_EQ(test::findings_text(validate_schedule(*got)), "") << label;
    test::expect_peaks(*got, recorded, label, false);
    for (const json& eval : recorded["evals"]) EXPECT_EQ(test::expect_evaluation(*got, eval, label), 5);
    ++compared;
  });
  EXPECT_EQ(lines, 31);
  EXPECT_EQ(compared, 25);
  EXPECT_EQ(incomplete, 6);
}

// Computations of one rank's instruction stream, "L0,F0;B0,RT,R,O": the k-th F (or B) is microbatch k's,
// whatever the number of its buffer.
std::string deepspeed_order(const std::string& steps, int stage) {
  std::string row;
  int count[2] = {0, 0};
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const bool begins = i == 0 || steps[i - 1] == ';' || steps[i - 1] == ',';
    const bool digit = steps[i + 1] >= '0' && steps[i + 1] <= '9';
    if (!begins || !digit || (steps[i] != 'F' && steps[i] != 'B')) continue;
    const bool is_forward = steps[i] == 'F';
    row += (row.empty() ? "" : " ") + std::to_string(stage) + steps[i] +
           std::to_string(count[is_forward ? 0 : 1]++);
  }
  return row;
}

// DeepSpeed's train schedule computes in the order of 1F1B, its inference schedule in that of the
// forward-only pass.
TEST(OrdersOracle, DeepSpeed) {
  std::map<std::string, int> compared;
  const int lines = test::for_each_line("oracles/schedules/deepspeed.jsonl.gz", [&](const json& recorded) {
    const bool train = recorded["gen"] == "deepspeed.TrainSchedule";
    std::vector<std::string> order;
    for (std::size_t rank = 0; rank < recorded["steps"].size(); ++rank) {
      order.push_back(deepspeed_order(recorded["steps"][rank], static_cast<int>(rank)));
    }
    const Schedule got =
        test::generate(train ? "1f1b" : "forward-only", {recorded["p"], 1, recorded["m"]}).value();
    if (train) {  // as many buffers as activations are alive, but two at least
      const std::vector<int> buffers = recorded["num_pipe_buffers"];
      for (int rank = 0; rank < got.ranks; ++rank)
        EXPECT_EQ(buffers[static_cast<std::size_t>(rank)], std::max(2, test::peak_live(got, rank)));
    }
    EXPECT_EQ(test::order_text(got), order) << recorded["p"] << " " << recorded["m"];
    ++compared[recorded["gen"]];
  });
  EXPECT_EQ(lines, 192);
  EXPECT_EQ(compared, (std::map<std::string, int>{{"deepspeed.InferenceSchedule", 96},
                                                  {"deepspeed.TrainSchedule", 96}}));
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
      {"jaxpp.Std1F1B", 51},         {"jaxpp.GPipe", 51},  {"jaxpp.Eager1F1B", 51}, {"jaxpp.ZeroBubble", 46},
      {"jaxpp.Interleaved1F1B", 82}, {"jaxpp.KimiK2", 82}, {"jaxpp.DualPipeV", 32},
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
    {"ZBVZeroBubble", "zb-v"},
    {"DualPipeV", "dualpipe-v"},
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
      {"1F1B", 15},      {"GPipe", 21},         {"Interleaved1F1B", 42}, {"InterleavedZeroBubble", 42},
      {"LoopedBFS", 42}, {"ZBVZeroBubble", 21}, {"DualPipeV", 9},
  };
  EXPECT_EQ(same, expected);
  EXPECT_EQ(refused, (std::map<std::string, int>{{"1F1B", 6}, {"DualPipeV", 33}, {"ZBVZeroBubble", 21}}));
}

}  // namespace
}  // namespace plumbline
