// What is made of the last words of ranks that are between steps.
#include "backends/processes/stall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/processes/watchdog.h"
#include "engine/config/validate.h"
#include "engine/program/run_plan.h"

namespace plumbline::processes {
namespace {

using testing::ElementsAre;

TEST(Stall, RanksThatMakeCommunicatorsWaitForThoseThatDoNot) {
  RunConfig config;
  config.parallel.pp = 3;
  config.model.layers = 3;
  config.model.name = "toy";
  const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
  ASSERT_TRUE(valid) << valid.error().text();
  RunPlan plan;
  plan.train.emplace_back();
  RankStatus makes, elsewhere;
  makes.await("makes communicators: its first member has not told its id yet");
  const Result<StallReport> report = explain_stall(
      *valid, plan, default_model(), {{0, position_json(makes, 0)}, {1, position_json(elsewhere, 1)}});
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_FALSE(report->stall.deadlock);
  EXPECT_THAT(report->lines,
              ElementsAre("rank 0 makes communicators: its first member has not told its id yet",
                          "rank 1 is between steps, after step -1", "rank 2 did not answer"));
  ASSERT_EQ(2u, report->stall.late.size());
  EXPECT_EQ(1, report->stall.late[0].rank);
  EXPECT_EQ(2, report->stall.late[1].rank);
}

TEST(RankStatus, WhatIsAwaitedIsWatchedAndMoves) {
  RankStatus status;
  EXPECT_FALSE(status.watched());
  status.await("makes communicators");
  EXPECT_TRUE(status.watched());
  const std::uint64_t before = status.progress();
  status.await("makes communicators");
  EXPECT_EQ(before, status.progress()) << "the same again is no progress";
  status.await("");
  EXPECT_FALSE(status.watched());
  EXPECT_LT(before, status.progress());
}

}  // namespace
}  // namespace plumbline::processes
