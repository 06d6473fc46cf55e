// Virtual times are doubles in the checker (lanes.h): exact as long as the step ends within 2^53 nanoseconds. Beyond
// that the simulator tells the makespans, which counts in integers.
#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"
#include "sim/verify/check.h"
#include "sim/verify/lanes.h"
#include "sim/verify/quotient.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

constexpr Nanoseconds kLimit = Nanoseconds{1} << 53;

// The makespans that the checker tells, after comparing them with the simulator's.
std::vector<ModeVerdict> checked(Nanoseconds forward, Nanoseconds backward) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 2, 1, 4, 2, 2);
  config.time.forward = {forward};
  config.time.backward = {backward};
  config.time.link = {3, 1e10};
  const auto program = program_of(config, default_sizes(config));
  EXPECT_TRUE(program) << program.error().text();
  const auto linked = link_program(*program);
  CheckOptions options;
  options.time = TimeModel(config);
  const auto verdict = check_program(*linked, options);
  EXPECT_TRUE(verdict && verdict->holds());
  const auto quotient = check_quotient(*program, options);
  EXPECT_TRUE(quotient && quotient->holds());
  for (std::size_t i = 0; i < verdict->modes.size(); ++i) {
    const auto simulated = simulate(*linked, *model_named(verdict->modes[i].mode), options.time);
    EXPECT_TRUE(simulated);
    EXPECT_EQ(verdict->modes[i].makespan, simulated->makespan) << verdict->modes[i].mode;
    EXPECT_EQ(quotient->modes[i].makespan, simulated->makespan) << verdict->modes[i].mode;
  }
  return verdict->modes;
}

TEST(LongTimes, AreExactUpToTheLimit) {
  // Odd times, whose sums end a little below the limit.
  const std::vector<ModeVerdict> modes = checked(kLimit / 16 + 1, kLimit / 16 + 7);
  EXPECT_LT(modes.front().makespan, kLimit);
  EXPECT_GT(modes.front().makespan, kLimit / 2);
}

TEST(LongTimes, AreToldByTheSimulatorBeyondIt) {
  // Neither number is a double.
  const std::vector<ModeVerdict> modes = checked(kLimit + 1, 2 * kLimit + 3);
  EXPECT_GT(modes.front().makespan, 4 * kLimit);
}

TEST(Lanes, AreRaisedEachByItself) {
  verify::Lanes lanes(5, 7);
  lanes.raise({6, 2});
  EXPECT_EQ(lanes.nanoseconds(0), 6);
  EXPECT_EQ(lanes.nanoseconds(1), 7);
  lanes.raise_certification(9);
  lanes.raise_certification(1);
  EXPECT_EQ(lanes.plus(1).nanoseconds(0), 10);
  EXPECT_EQ(lanes.plus(1).nanoseconds(1), 8);
  EXPECT_EQ(lanes.certification().nanoseconds(0), 9);
  EXPECT_EQ(lanes.certification().nanoseconds(1), 0);
  EXPECT_TRUE(lanes.exact());
  EXPECT_FALSE(verify::Lanes(0, verify::Lanes::kExact).exact());
  EXPECT_FALSE(verify::Lanes(verify::Lanes::kExact, 0).exact());
}

}  // namespace
}  // namespace plumbline
