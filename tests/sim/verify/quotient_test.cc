// The quotient's verdict is the full walk's, byte by byte; what it cannot stand for is refused with the reason.
#include "sim/verify/quotient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

CheckOptions timed(const RunConfig& config) {
  CheckOptions options;
  options.time = TimeModel(config);
  return options;
}
RunConfig config_of(ScheduleKind kind, int pp, int chunks, int dp,
                    std::string_view order = "tp-cp-ep-dp-pp") {
  RunConfig config = test::config_of(kind, pp, chunks, 2 * pp, pp, dp);
  config.grid = RankGrid::create({1, 1, 1, dp, pp}, order).value();
  config.time.forward = {100};
  config.time.backward = {210};
  config.time.optimizer = 50;
  config.time.link = {7, 1e10};
  return config;
}
std::string whole(const Program& program, const CheckOptions& options) {
  const auto linked = link_program(program);
  EXPECT_TRUE(linked) << linked.error().text();
  const auto verdict = check_program(*linked, options);
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? verdict_json(*verdict) : std::string();
}
std::string why_not(const Program& program, const CheckOptions& options = {}) {
  const auto verdict = check_quotient(program, options);
  return verdict ? std::string() : verdict.error().text();
}

TEST(Quotient, IsTheFullWalk) {
  int programs = 0;
  for (const ScheduleKind kind :
       {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved}) {
    for (const int pp : {1, 2, 4}) {
      for (const int dp : {1, 2, 3, 8}) {
        for (const char* order : {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}) {
          for (const CommMap map : {CommMap::kOne, CommMap::kPair, CommMap::kMegatron}) {
            for (const bool distributed : {false, true}) {
              if (kind == ScheduleKind::kInterleaved && pp == 1) continue;
              RunConfig config = config_of(kind, pp, kind == ScheduleKind::kInterleaved ? 2 : 1, dp, order);
              config.schedule.comm_map = map;
              config.train.precision = distributed ? Precision::kBf16 : Precision::kFp16;
              config.optimizer.distributed = distributed;
              const auto program = program_of(config, default_sizes(config));
              ASSERT_TRUE(program) << program.error().text();
              const CheckOptions options = timed(config);
              const auto verdict = check_quotient(*program, options);
              ASSERT_TRUE(verdict) << verdict.error().text();
              ASSERT_EQ(verdict_json(*verdict), whole(*program, options));
              ++programs;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(programs, 384);
}

TEST(Quotient, WhatDoesNotHoldIsExplainedAmongAllRanks) {
  RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 1, 4);
  Program program = program_of(config, default_sizes(config)).value();
  for (Item& item : program.items) {  // receives expect more than is sent
    if (item_op(item) != ItemOp::kOp) continue;
    Endpoint& row = program.endpoints[item_ref(item)];
    if (row.kind == EndpointKind::kRecv) row.bytes += 4;
  }
  const auto verdict = check_quotient(program, timed(config));
  ASSERT_TRUE(verdict) << verdict.error().text();
  EXPECT_FALSE(verdict->holds());
  EXPECT_EQ(verdict_json(*verdict), whole(program, timed(config)));
}

TEST(Quotient, RefusesWhatReplicasDoNotShare) {
  const RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 1, 4);
  const Program program = program_of(config, default_sizes(config)).value();
  EXPECT_EQ(why_not(program, timed(config)), "");

  RunConfig slow = config;
  slow.time.slow[3] = 2.0;
  EXPECT_THAT(why_not(program, timed(slow)), testing::HasSubstr("times of their own"));
  RunConfig shared = config;
  shared.time.cores = 2;
  EXPECT_THAT(why_not(program, timed(shared)), testing::HasSubstr("ranks share cores"));

  Program own = program;  // a copy of the items for one rank
  const auto begin = static_cast<std::uint32_t>(own.items.size());
  const auto items = own.thread_items(3);
  const std::vector<Item> copy(items.begin(), items.end());
  own.items.insert(own.items.end(), copy.begin(), copy.end());
  own.threads[3].begin = begin;
  own.threads[3].end = static_cast<std::uint32_t>(own.items.size());
  EXPECT_THAT(why_not(own), testing::HasSubstr("do not share their items"));

  Program some = program;
  for (CommFamily& family : some.families) {
    for (auto& instance : family.instances) {
      if (config.grid.coordinate(instance.front(), Axis::kDp) !=
          config.grid.coordinate(instance.back(), Axis::kDp))
        instance.pop_back();
    }
  }
  EXPECT_THAT(why_not(some), testing::HasSubstr("holds some replicas only"));

  Program swapped = program;  // one replica lists its members the other way round
  for (CommFamily& family : swapped.families) {
    std::vector<Rank>& last = family.instances.back();
    if (last.size() == 2 &&
        config.grid.coordinate(last[0], Axis::kDp) == config.grid.coordinate(last[1], Axis::kDp))
      std::swap(last[0], last[1]);
  }
  EXPECT_THAT(why_not(swapped), testing::HasSubstr("different communicators"));

  Program named = program;
  for (Endpoint& row : named.endpoints) {
    if (row.kind == EndpointKind::kSend) row.form = PeerForm::kRank;
  }
  EXPECT_THAT(why_not(named), testing::HasSubstr("names a rank"));
}

TEST(Quotient, IndependentProgramsInTheirOrder) {
  std::vector<Program> programs;
  for (const int pp : {1, 2, 3, 4, 2}) {
    const RunConfig config = config_of(ScheduleKind::kOneFOneB, pp, 1, 1);
    programs.push_back(program_of(config, default_sizes(config)).value());
  }
  for (const unsigned workers : {1U, 3U, 0U}) {
    const auto verdicts = check_programs(programs, {}, workers);
    ASSERT_EQ(verdicts.size(), programs.size());
    for (std::size_t i = 0; i < programs.size(); ++i)
      EXPECT_EQ(verdict_json(*verdicts[i]), whole(programs[i], {}));
  }
}

}  // namespace
}  // namespace plumbline
