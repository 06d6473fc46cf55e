// Activations and weight gradients that a rank holds: bounds that hold are not reported, one less is, on every rank
// that reaches it; and what the generators promise is kept.
#include "engine/schedule/bounds.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

int most(const std::vector<int>& of_ranks) { return *std::max_element(of_ranks.begin(), of_ranks.end()); }

std::vector<Schedule> all_schedules() {
  std::vector<Schedule> out;
  for (const Generator& generator : generators()) {
    for (const int ranks : {1, 2, 4}) {
      for (const int chunks : {1, 2}) {
        for (const int microbatches : {2, 4, 8, 12}) {
          GeneratorArgs args;
          args.ranks = ranks;
          args.chunks = chunks;
          args.microbatches = microbatches;
          const Result<Schedule> made = generator.make(args);
          if (made) out.push_back(*made);
        }
      }
    }
  }
  return out;
}

TEST(Bounds, PeaksAreTheEvaluators) {
  int compared = 0;
  for (const Schedule& schedule : all_schedules()) {
    const Evaluation evaluation = evaluate(schedule, {}).value();
    const Holdings holdings = peak_holdings(schedule);
    EXPECT_EQ(holdings.until_weight_grad, evaluation.peak_until_weight_grad) << schedule.name;
    EXPECT_EQ(holdings.until_input_grad, evaluation.peak_until_input_grad) << schedule.name;
    ++compared;
  }
  EXPECT_GT(compared, 250);
}

TEST(Bounds, HoldAtThePeakAndNotBelow) {
  for (const Schedule& schedule : all_schedules()) {
    const Holdings holdings = peak_holdings(schedule);
    const HoldingBounds peak{most(holdings.until_weight_grad), most(holdings.until_input_grad),
                             most(holdings.open_weight_grads)};
    EXPECT_TRUE(check_bounds(schedule, peak).empty()) << schedule.name;
    EXPECT_TRUE(check_bounds(schedule, {}).empty()) << schedule.name;
    const auto ranks_at = [](const std::vector<int>& peaks) {
      return std::count(peaks.begin(), peaks.end(), most(peaks));
    };
    if (peak.until_weight_grad > 1) {
      const auto found = check_bounds(schedule, {peak.until_weight_grad - 1, 0, 0});
      EXPECT_EQ(static_cast<long>(found.size()), ranks_at(holdings.until_weight_grad)) << schedule.name;
    }
    if (peak.open_weight_grads > 1) {
      const auto found = check_bounds(schedule, {0, 0, peak.open_weight_grads - 1});
      EXPECT_EQ(static_cast<long>(found.size()), ranks_at(holdings.open_weight_grads)) << schedule.name;
    }
  }
}

// All W at the end: nothing is freed by I, and the queue is as long as the step.
TEST(Bounds, NameTheActionAndThePeak) {
  Schedule schedule = test::generate("zb-h1", {4, 1, 8}).value();
  std::vector<Action> row(schedule.row(3).begin(), schedule.row(3).end());
  std::stable_partition(row.begin(), row.end(),
                        [](const Action& action) { return action.kind != ActionKind::kWeightGrad; });
  std::copy(row.begin(), row.end(), schedule.actions.begin() + schedule.offsets[3]);
  ASSERT_TRUE(validate_schedule(schedule).empty());
  const auto activations = check_bounds(schedule, {4, 0, 0});
  ASSERT_EQ(activations.size(), 1u);
  EXPECT_EQ(activations[0].rule, "activations");
  EXPECT_EQ(activations[0].rank, 3);
  EXPECT_EQ(activations[0].why,
            "with 3F4 rank 3 holds 5 activations, each until its W or B; the bound is 4, its peak 8");
  EXPECT_TRUE(check_bounds(schedule, {0, 4, 0}).empty());  // what I lets go does not pile up
  const auto queue = check_bounds(schedule, {0, 0, 4});
  ASSERT_EQ(queue.size(), 1u);
  EXPECT_EQ(queue[0].rule, "weight-queue");
  EXPECT_EQ(queue[0].why,
            "with 3I4 rank 3 holds 5 weight gradients whose W is still to come; the bound is 4, its peak 8");
}

// The caps of the generators that search.
TEST(Bounds, CapsAreKept) {
  for (const auto& [name, chunks] :
       {std::pair{"zb-auto", 1}, std::pair{"zbv-auto", 2}, std::pair{"v-auto", 2}}) {
    int kept = 0;
    for (const int cap : {4, 5, 6, 8, 10, 12}) {
      GeneratorArgs args;
      args.ranks = 4;
      args.chunks = chunks;
      args.microbatches = 8;
      args.activations.cap = {cap};
      const Result<Schedule> made = find_generator(name).value()->make(args);
      if (!made) continue;
      EXPECT_TRUE(check_bounds(*made, {cap, 0, 0}).empty()) << name << " " << cap;
      ++kept;
    }
    EXPECT_GT(kept, 1) << name;
  }
}

}  // namespace
}  // namespace plumbline
