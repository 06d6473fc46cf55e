// The evaluator against two independent ones: the recorded figures of 1,740 orders and another project's executor.
#include "engine/schedule/evaluate.h"

#include <map>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/engine/schedule/orders.h"

namespace plumbline {
namespace {

using nlohmann::json;

TEST(Evaluate, EveryRecordedOrder) {
  int evaluations = 0;
  int figures = 0;
  const int lines = test::for_each_line("oracles/schedules/orders.jsonl.gz", [&](const json& line) {
    const Schedule schedule = test::schedule_of_order(line);
    const std::string label = test::label_of(line);
    ASSERT_EQ(test::findings_text(validate_schedule(schedule)), "") << label;
    test::expect_peaks(schedule, line, label);
    for (const json& eval : line["evals"]) {
      ++evaluations;
      figures += test::expect_evaluation(schedule, eval, label);
    }
  });
  EXPECT_EQ(lines, 1740);
  EXPECT_EQ(evaluations, 5440);
  EXPECT_EQ(figures, 5 * 5440);
}

// Victarry/PP-Schedule-Visualization runs its own schedules on its own executor; pairs included.
TEST(Evaluate, AnotherProjectsExecutor) {
  int pairs = 0;
  std::map<std::string, json> orders;  // an order is recorded once, and left out where only the costs differ
  const int lines = test::for_each_line("oracles/schedules/xcheck_ppviz.jsonl.gz", [&](const json& recorded) {
    json line = recorded;
    const std::string shape =
        line["gen"].get<std::string>() + " " + line["p"].dump() + " " + line["m"].dump();
    if (line["order"].is_null()) line["order"] = orders.at(shape);
    orders[shape] = line["order"];
    const std::string gen = line["gen"];
    if (gen == "ppviz.dualpipe") line["place"] = "bidir";
    const Schedule schedule = test::schedule_of_order(line);
    pairs += static_cast<int>(std::count_if(schedule.actions.begin(), schedule.actions.end(),
                                            [](const Action& action) { return action.paired != 0; }));
    test::expect_peaks(schedule, line, test::label_of(line), false);
    json eval = {{"cost", line["cost"]}, {"makespan", line["total"]}};
    EXPECT_EQ(test::expect_evaluation(schedule, eval, test::label_of(line)), 1);
  });
  EXPECT_EQ(lines, 508);
  EXPECT_GT(pairs, 5000);
}

TEST(Evaluate, TimesOfEachAction) {
  const Schedule schedule = test::generate("1f1b", {2, 1, 2}).value();
  StageCosts costs;
  costs.forward = {3, 4};
  costs.backward = {5, 6};
  costs.hop = 1;
  ActionTimes times;
  const Evaluation got = evaluate(schedule, costs, &times).value();
  // rank 0: F0 F1 B0 B1; rank 1: F0 B0 F1 B1
  EXPECT_EQ(times.start, (std::vector<Nanoseconds>{0, 3, 15, 25, 4, 8, 14, 18}));
  EXPECT_EQ(times.end, (std::vector<Nanoseconds>{3, 6, 20, 30, 8, 14, 18, 24}));
  EXPECT_EQ(got.makespan, 30);
  EXPECT_EQ(got.stage_time, 30);
  EXPECT_EQ(got.work, 20);
  EXPECT_EQ(got.busy, (std::vector<Nanoseconds>{16, 20}));
  EXPECT_EQ(got.first_start, (std::vector<Nanoseconds>{0, 4}));
  EXPECT_EQ(got.last_end, (std::vector<Nanoseconds>{30, 24}));
  EXPECT_DOUBLE_EQ(got.bubble(), 1.0 - 20.0 / 30.0);
}

TEST(Evaluate, RefusesWhatCannotRun) {
  const Schedule good = test::generate("1f1b", {2, 1, 1}).value();
  StageCosts costs;
  costs.forward = {1, 2, 3};
  EXPECT_EQ(evaluate(good, costs).error().message,
            "schedule 1f1b: the forward time has 3 entries for 2 stages; give 1 or 2");
  costs.forward = {-1};
  EXPECT_EQ(evaluate(good, costs).error().message, "schedule 1f1b: the forward time is -1; set 0 or more");
  test::Rows rows = test::rows_of(good);
  std::swap(rows[1][0], rows[1][1]);
  EXPECT_EQ(evaluate(test::with_rows(good, rows), {}).error().message,
            "schedule 1f1b cannot run: 0B0 on rank 0 waits for something that never ends; check the "
            "schedule's order");
  rows[1][0].microbatch = 7;
  EXPECT_EQ(evaluate(test::with_rows(good, rows), {}).error().message,
            "schedule 1f1b cannot run: 1B7 is outside its 2 stages and 1 microbatches");
}

// Against the slow reference: any valid order, any costs.
RC_GTEST_PROP(Evaluate, AgreesWithTheReference, ()) {
  const std::vector<std::string> names = {"gpipe", "1f1b", "interleaved"};
  const std::string name = *rc::gen::elementOf(names);
  GeneratorArgs args;
  args.ranks = *rc::gen::inRange(1, 6);
  args.chunks = name == "interleaved" ? *rc::gen::inRange(1, 4) : 1;
  args.microbatches = args.ranks * *rc::gen::inRange(1, 4);
  const Schedule schedule = test::generate(name, args).value();
  test::Costs costs;
  costs.forward = *rc::gen::inRange(0, 20);
  costs.backward = *rc::gen::inRange(0, 20);
  StageCosts same;
  same.forward = {costs.forward};
  same.backward = {costs.backward};
  RC_ASSERT(evaluate(schedule, same)->makespan == test::makespan(schedule, costs));
}

}  // namespace
}  // namespace plumbline
