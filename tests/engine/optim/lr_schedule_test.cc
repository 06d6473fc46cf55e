#include "engine/optim/lr_schedule.h"

#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

const std::map<std::string, DecayStyle> kStyles{
    {"constant", DecayStyle::kConstant}, {"linear", DecayStyle::kLinear}, {"cosine", DecayStyle::kCosine}};

// The rate of every parameter group after every recorded step: exact, but for one unit in the last place of a
// cosine.
void replay(const Json& line) {
  const Json& args = line["args"];
  LrSchedule base;
  base.initial = args["init_lr"].get<double>();
  base.warmup_steps = args["lr_warmup_steps"].get<std::int64_t>();
  base.decay_steps = args["lr_decay_steps"].get<std::int64_t>();
  base.style = kStyles.at(args["lr_decay_style"].get<std::string>());
  for (const Json& row : line["rows"]) {
    for (std::size_t group = 0; group < line["groups"].size(); ++group) {
      LrSchedule schedule = base;
      schedule.maximum = line["groups"][group].value("max_lr", args["max_lr"].get<double>());
      schedule.minimum = line["groups"][group].value("min_lr", args["min_lr"].get<double>());
      const double expected = std::stod(row[1 + group][0].get<std::string>());
      const double got = schedule.at(row[0].get<std::int64_t>());
      const double slack = base.style == DecayStyle::kCosine ? std::nextafter(expected, 1.0) - expected : 0.0;
      EXPECT_NEAR(got, expected, slack) << row.dump() << " of " << args.dump();
    }
  }
}

TEST(LrSchedule, EqualsMegatron) {
  int replayed = 0;
  test::for_each_line("oracles/megatron/optimizer_param_scheduler.jsonl.gz", [&](const Json& line) {
    if (line["kind"] != "trace" || kStyles.count(line["args"]["lr_decay_style"].get<std::string>()) == 0)
      return;
    if (line.contains("error") && !line["error"].is_null()) return;
    replay(line);
    ++replayed;
  });
  EXPECT_GE(replayed, 20);
}

TEST(LrSchedule, WarmUpStartsAtZeroAndCountsUpdates) {
  OptimizerConfig config;
  config.lr = 1.0;
  config.warmup_iterations = 4;
  config.decay = DecayStyle::kLinear;
  const LrSchedule schedule = LrSchedule::of(config, 12);
  EXPECT_EQ(schedule.at(0), 0.0);
  EXPECT_EQ(schedule.at(2), 0.5);
  EXPECT_EQ(schedule.at(4), 1.0);
  EXPECT_EQ(schedule.at(8), 0.5);
  EXPECT_EQ(schedule.at(12), 0.0);
  EXPECT_EQ(schedule.at(13), 0.0);
}

}  // namespace
}  // namespace plumbline
