// Proven least makespans under an activation cap (an exhaustive search of small instances,
// tests/oracles/schedules/exact_optima.jsonl): nothing that we generate may beat one, and the zero-bubble
// heuristic must land exactly where the authors' does.
#include <map>

#include <gtest/gtest.h>

#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using nlohmann::json;

struct Instance {
  GeneratorArgs args;
  int cap = 0;
  Nanoseconds optimum = 0;
  std::string label;
};

Instance instance_of(const json& line, int chunks) {
  Instance out;
  out.args.ranks = line["p"];
  out.args.chunks = chunks;
  out.args.microbatches = line["m"];
  out.args.costs.forward = {line["F"]};
  out.args.costs.input_grad = {line["I"]};
  out.args.costs.weight_grad = {line["W"]};
  out.cap = line["M"];
  const double early = line.value("relI", 0.0);
  out.args.activations = {{2}, {static_cast<std::int64_t>(2 * early)}, {2 * line["M"].get<std::int64_t>()}};
  out.optimum = line["opt"];
  out.label = line.dump();
  return out;
}

// Whether the order keeps the cap; if it does, it may not beat the optimum.
bool keeps_cap_and_bound(const Generator& generator, const Instance& instance, bool* optimal) {
  const Result<Schedule> schedule = generator.make(instance.args);
  if (!schedule || schedule->pipelines() > 1 || schedule->forward_only) return false;
  const Evaluation got = evaluate(*schedule, instance.args.costs).value();
  const int peak = *std::max_element(got.peak_until_weight_grad.begin(), got.peak_until_weight_grad.end());
  if (peak > instance.cap) return false;
  EXPECT_GE(got.makespan, instance.optimum) << generator.name << " " << instance.label;
  *optimal = got.makespan == instance.optimum;
  return true;
}

TEST(Optima, OneChunk) {
  int orders = 0, from_p_on = 0, optimal_from_p_on = 0, below_p = 0, optimal_below_p = 0;
  const Generator& heuristic = **find_generator("zb-auto");
  const int lines = test::for_each_line("oracles/schedules/exact_optima.jsonl", [&](const json& line) {
    if (line.contains("place")) return;
    const Instance instance = instance_of(line, 1);
    if (line["relI"] != 0) {
      const Result<Schedule> schedule = heuristic.make(instance.args);
      if (schedule)
        EXPECT_GE(evaluate(*schedule, instance.args.costs)->makespan, instance.optimum) << instance.label;
      return;
    }
    for (const Generator& generator : generators()) {
      bool optimal = false;
      orders += keeps_cap_and_bound(generator, instance, &optimal) ? 1 : 0;
      if (generator.name != heuristic.name) continue;
      (instance.cap >= instance.args.ranks ? from_p_on : below_p) += 1;
      (instance.cap >= instance.args.ranks ? optimal_from_p_on : optimal_below_p) += optimal ? 1 : 0;
    }
    const Evaluation got = evaluate(heuristic.make(instance.args).value(), instance.args.costs).value();
    EXPECT_EQ(got.makespan, line["zb_heuristic_makespan"].get<Nanoseconds>()) << instance.label;
    EXPECT_EQ(got.stage_time, line["zb_heuristic_stage_time"].get<Nanoseconds>()) << instance.label;
    EXPECT_EQ(*std::max_element(got.peak_until_weight_grad.begin(), got.peak_until_weight_grad.end()),
              line["zb_heuristic_peak"].get<int>());
  });
  EXPECT_EQ(lines, 395);
  EXPECT_GT(orders, 900);
  // At 1F1B's memory or more the heuristic is as good as anything; below it often is not (docs/schedules.md).
  EXPECT_EQ(from_p_on, 164);
  EXPECT_EQ(optimal_from_p_on, 164);
  EXPECT_EQ(below_p, 126);
  EXPECT_EQ(optimal_below_p, 64);
}

TEST(Optima, V) {
  std::map<std::string, int> optimal_orders;
  int limits = 0;
  test::for_each_line("oracles/schedules/exact_optima.jsonl", [&](const json& line) {
    if (!line.contains("place")) return;
    if (line.value("status", "") == "limit") {
      ++limits;
      return;
    }
    const Instance instance = instance_of(line, 2);
    for (const Generator& generator : generators()) {
      // The optimum is one of the V; interleaved orders have other stages on a rank.
      const Result<Schedule> schedule = generator.make(instance.args);
      if (!schedule || schedule->rank_of_stage != wave_placement(schedule->stages, schedule->ranks)) continue;
      bool optimal = false;
      keeps_cap_and_bound(generator, instance, &optimal);
      if (optimal) ++optimal_orders[generator.name];
    }
  });
  EXPECT_EQ(limits, 1);
  const std::map<std::string, int> expected = {
      {"v-auto", 28}, {"v-half", 9}, {"v-min", 4}, {"v-zb", 7}, {"zb-v", 7}, {"zbv-auto", 11},
  };
  EXPECT_EQ(optimal_orders, expected);
}

}  // namespace
}  // namespace plumbline
