// What holds for every generator, whatever it orders.
#include <map>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/schedule/communicate.h"
#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

// Valid by the checker and by the slow reference, runs in the evaluator, and gets its communication.
void expect_sound(const Schedule& schedule, const std::string& label) {
  ASSERT_EQ(test::findings_text(validate_schedule(schedule)), "") << label;
  const Result<Evaluation> evaluation = evaluate(schedule, {});
  ASSERT_TRUE(evaluation) << label << evaluation.error().text();
  std::size_t computations = 0;
  for (const Action& action : schedule.actions) computations += action.kind == ActionKind::kForward ? 1 : 0;
  EXPECT_EQ(computations,
            static_cast<std::size_t>(schedule.stages) * static_cast<std::size_t>(schedule.microbatches))
      << label;
  EXPECT_GE(evaluation->makespan, evaluation->work) << label;
  EXPECT_GE(evaluation->makespan, evaluation->stage_time) << label;
  EXPECT_TRUE(add_communication(schedule)) << label;
}

// All sizes of a small world: what is not refused is sound, and refusals say what to do.
TEST(EveryGenerator, SmallWorld) {
  std::map<std::string, int> made;
  for (const Generator& generator : generators()) {
    made[generator.name] = 0;
    for (int p = 1; p <= 5; ++p) {
      for (int v = 1; v <= 4; ++v) {
        for (int m = 1; m <= 11; ++m) {
          const std::string label = generator.name + " P " + std::to_string(p) + " V " + std::to_string(v) +
                                    " M " + std::to_string(m);
          const Result<Schedule> schedule = generator.make({p, v, m});
          if (!schedule) {
            EXPECT_EQ(schedule.error().code, ErrorCode::kConfig) << label;
            EXPECT_NE(schedule.error().message.find("schedule"), std::string::npos) << label;
            continue;
          }
          ++made[generator.name];
          expect_sound(*schedule, label);
        }
      }
    }
  }
  for (const auto& [name, count] : made) EXPECT_GE(count, 3) << name;
}

// The same arguments give the same order, and the order does not depend on costs unless the schedule
// searches.
TEST(EveryGenerator, IsDeterministic) {
  for (const Generator& generator : generators()) {
    for (const int v : {1, 2, 4}) {
      const GeneratorArgs args{4, v, 8};
      const Result<Schedule> once = generator.make(args);
      if (!once) continue;
      EXPECT_EQ(*once, *generator.make(args)) << generator.name;
      GeneratorArgs other = args;
      other.costs = StageCosts{{7}, {9}, {4}, {}, {}, 3};
      const bool searches = generator.name.find("-auto") != std::string::npos;
      if (!searches) EXPECT_EQ(*once, *generator.make(other)) << generator.name;
    }
  }
}

// Searches: any costs, even per stage, and any cap give a sound order under the cap, or a refusal.
RC_GTEST_PROP(EveryGenerator, SearchesKeepTheirCap, ()) {
  const std::vector<std::string> names = {"zb-auto", "zbv-auto", "v-auto"};
  const std::string name = *rc::gen::elementOf(names);
  GeneratorArgs args;
  args.ranks = *rc::gen::inRange(1, name == "v-auto" ? 5 : 7);
  args.chunks = name == "zb-auto" ? 1 : 2;
  args.microbatches = *rc::gen::inRange(1, 14);
  const std::size_t stages = static_cast<std::size_t>(args.ranks * args.chunks);
  const auto list = [&](int low, int high) {
    const bool each = *rc::gen::inRange(0, 3) == 0;
    return *rc::gen::container<std::vector<std::int64_t>>(each ? stages : 1,
                                                          rc::gen::inRange<std::int64_t>(low, high));
  };
  args.costs.forward = list(0, 20);
  args.costs.input_grad = list(0, 20);
  args.costs.weight_grad = list(0, 20);
  args.costs.hop = *rc::gen::inRange(0, 10);
  args.activations.held = {*rc::gen::inRange(1, 5)};
  args.activations.freed_early = {*rc::gen::inRange<std::int64_t>(0, args.activations.held[0] + 1)};
  args.activations.cap = {*rc::gen::inRange<std::int64_t>(1, 10 * args.ranks + 2)};
  const Result<Schedule> schedule = test::generate(name, args);
  if (!schedule) {
    RC_ASSERT(schedule.error().code == ErrorCode::kConfig);
    return;
  }
  RC_ASSERT(test::findings_text(validate_schedule(*schedule)) == "");
  RC_ASSERT(evaluate(*schedule, args.costs).has_value());
  for (int rank = 0; rank < args.ranks; ++rank) {
    RC_ASSERT(test::peak_held(*schedule, rank, args.activations) <= args.activations.cap[0]);
  }
}

}  // namespace
}  // namespace plumbline
