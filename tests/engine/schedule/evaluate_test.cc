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

// Where a stage is on one rank, a slow rank is one whose stages cost more; with copies on several it is not.
TEST(Evaluate, SlowRanks) {
  int compared = 0;
  for (const auto& [name, chunks] : {std::pair{"1f1b", 1}, std::pair{"zb-h1", 1}, std::pair{"interleaved", 2},
                                     std::pair{"zb-v", 2}, std::pair{"dualpipe-v", 2}}) {
    const Schedule schedule = test::generate(name, {4, chunks, 8}).value();
    StageCosts costs;
    costs.forward = {10};
    costs.input_grad = {12};
    costs.weight_grad = {8};
    costs.hop = 1;
    costs.slow = {1.0, 1.0, 1.5, 0.5};
    StageCosts listed = costs;
    listed.slow.clear();
    for (auto* list : {&listed.forward, &listed.input_grad, &listed.weight_grad}) {
      const auto each = static_cast<double>(list->front());
      list->clear();
      for (int stage = 0; stage < schedule.stages; ++stage)
        list->push_back(static_cast<Nanoseconds>(
            each * costs.slow[static_cast<std::size_t>(schedule.rank_of(stage, 0))]));
    }
    ActionTimes slow_times, listed_times;
    const Evaluation slow = evaluate(schedule, costs, &slow_times).value();
    EXPECT_EQ(slow.makespan, evaluate(schedule, listed, &listed_times).value().makespan) << name;
    EXPECT_EQ(slow_times.start, listed_times.start) << name;
    EXPECT_EQ(slow_times.end, listed_times.end) << name;
    costs.slow.clear();
    EXPECT_GT(slow.makespan, evaluate(schedule, costs).value().makespan) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 5);
  // Both copies of a stage take F 10, B 20; only what rank 0 computes takes twice that.
  const Schedule copies = test::generate("chimera", {2, 1, 2}).value();
  StageCosts costs;
  costs.forward = {10};
  costs.backward = {20};
  costs.slow = {2.0, 1.0};
  EXPECT_EQ(evaluate(copies, costs).value().busy, (std::vector<Nanoseconds>{120, 60}));
  costs.recompute = {10};
  EXPECT_EQ(evaluate(copies, costs).value().busy, (std::vector<Nanoseconds>{160, 80}));
}

TEST(Evaluate, RefusesWhatCannotRun) {
  const Schedule good = test::generate("1f1b", {2, 1, 1}).value();
  StageCosts costs;
  costs.forward = {1, 2, 3};
  EXPECT_EQ(evaluate(good, costs).error().message,
            "schedule 1f1b: the forward time has 3 entries for 2 stages; give 1 or 2");
  costs.forward = {-1};
  EXPECT_EQ(evaluate(good, costs).error().message, "schedule 1f1b: the forward time is -1; set 0 or more");
  costs.forward = {1};
  costs.slow = {1.0};
  EXPECT_EQ(evaluate(good, costs).error().message,
            "schedule 1f1b: 1 factors of slow ranks for 2 ranks; give 0 or 2");
  costs.slow = {1.0, 0.0};
  EXPECT_EQ(evaluate(good, costs).error().message,
            "schedule 1f1b: a rank is slow by 0; set a factor above 0 and at most 1000");
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
