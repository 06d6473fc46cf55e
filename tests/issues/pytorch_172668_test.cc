// pytorch/pytorch#172668: a looped pipeline on two ranks hangs, because both ranks send before they receive:
//   rank 0: 0SEND_F1, 2RECV_F0        rank 1: 1SEND_F0, 1RECV_F1
// (`pp2_looped_both_send` in tests/oracles/nccl/scenarios.jsonl). The repair of the thread: one side receives
// first.
#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "engine/schedule/csv.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"
#include "sim/verify/check.h"

namespace plumbline {
namespace {

Program program_from(const char* rows, CommMap map) {
  const auto schedule = parse_schedule_csv(rows, "rows.csv", {.fragment = true});
  EXPECT_TRUE(schedule.has_value()) << schedule.error().text();
  RunConfig config;
  config.schedule.kind = ScheduleKind::kCsv;
  config.schedule.comm_map = map;
  config.parallel.pp = 2;
  config.schedule.microbatches = schedule->microbatches;
  config.grid = *RankGrid::create({1, 1, 1, 1, 2});
  ModelSizes sizes;
  sizes.stash.resize(static_cast<std::size_t>(schedule->stages), 64);
  sizes.grads.resize(static_cast<std::size_t>(schedule->stages), 64);
  LowerOptions options;
  options.fragment = true;
  options.tail = StepTail::kSchedule;
  auto program = lower(config, *schedule, sizes, options);
  EXPECT_TRUE(program.has_value()) << program.error().text();
  return std::move(*program);
}

Verdict check(const Program& program) {
  const auto linked = link_program(program);
  EXPECT_TRUE(linked.has_value());
  auto verdict = check_program(*linked);
  EXPECT_TRUE(verdict.has_value());
  return std::move(*verdict);
}

// The simulator's graph shows the receives between them as nodes of their own.
int sends_on_cycle(const Finding& deadlock) {
  int sends = 0;
  for (const WaitEdge& edge : deadlock.cycle)
    sends += edge.from.text.find("SEND") != std::string::npos ? 1 : 0;
  return sends;
}

TEST(Pytorch172668, BothSendFirst) {
  for (const CommMap map : {CommMap::kOne, CommMap::kPair}) {
    const Program program = program_from("0SEND_F1,2RECV_F0\n1SEND_F0,1RECV_F1\n", map);
    const Verdict verdict = check(program);
    EXPECT_EQ(verdict.exit_code(), 3);
    ASSERT_EQ(verdict.modes.size(), 2u);
    for (const ModeVerdict& mode : verdict.modes) {
      EXPECT_FALSE(mode.completes) << mode.mode;
      ASSERT_EQ(mode.findings.back().kind, FindingKind::kDeadlock);
      EXPECT_EQ(sends_on_cycle(mode.findings.back()), 2) << mode.mode;
    }
    // The checker's cycle has just the two: each send waits for a receive that comes after the other send.
    const Finding& deadlock = verdict.modes[0].findings.back();
    ASSERT_EQ(deadlock.cycle.size(), 2u);
    EXPECT_NE(deadlock.cycle[0].from.text.find("0SEND_F1"), std::string::npos);
    EXPECT_NE(deadlock.cycle[0].to.text.find("1SEND_F0"), std::string::npos);
    EXPECT_NE(deadlock.cycle[1].from.text.find("1SEND_F0"), std::string::npos);
    EXPECT_NE(deadlock.cycle[1].to.text.find("0SEND_F1"), std::string::npos);
    // Cold, both ranks set the connection up for sending; the sizes of the set-up messages agree, what they
    // say does not.
    EXPECT_EQ(verdict.modes[0].findings.front().kind, FindingKind::kCrossWired);
    // Nothing else is wrong: the messages match.
    EXPECT_TRUE(verdict.findings.empty());
  }
}

TEST(Pytorch172668, EagerHidesIt) {
  const Program program = program_from("0SEND_F1,2RECV_F0\n1SEND_F0,1RECV_F1\n", CommMap::kOne);
  const auto linked = link_program(program);
  ASSERT_TRUE(linked.has_value());
  NcclModel eager = default_model();
  eager.send = SendCompletion::kAlwaysEager;
  const auto mode = simulate(*linked, eager, TimeModel());
  ASSERT_TRUE(mode.has_value());
  EXPECT_TRUE(mode->completes);
}

TEST(Pytorch172668, OneSideReceivesFirst) {
  for (const CommMap map : {CommMap::kOne, CommMap::kPair}) {
    const Verdict verdict = check(program_from("0SEND_F1,2RECV_F0\n1RECV_F1,1SEND_F0\n", map));
    EXPECT_TRUE(verdict.certified());
    EXPECT_EQ(verdict.exit_code(), 0);
  }
}

}  // namespace
}  // namespace plumbline
