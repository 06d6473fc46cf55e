// simulate_run on lowered schedules: what `plumbline sim` stands on.
#include "sim/run.h"

#include <gtest/gtest.h>

#include "engine/config/validate.h"
#include "engine/program/lower.h"

namespace plumbline {
namespace {

RunConfig config_of(ScheduleKind kind, int pp, int microbatches) {
  RunConfig config;
  config.schedule.kind = kind;
  config.parallel.pp = pp;
  config.schedule.microbatches = microbatches;
  config.model.layers = pp;
  const Result<RunConfig> valid = validate(config);
  EXPECT_TRUE(valid) << valid.error().text();
  config = *valid;
  // Links that take no time: the textbook's assumption, which no configuration file may state.
  config.time.forward = {100};
  config.time.backward = {200};
  config.time.optimizer = 0;
  config.time.link = {0, 0.0};
  return config;
}

Program program_with(const RunConfig& config, StepTail tail) {
  LowerOptions options;
  options.tail = tail;
  return program_of(config, default_sizes(config), options).value();
}

TEST(SimRun, OneFOneBTakesTheTextbookTime) {
  for (const int pp : {1, 2, 4, 8}) {
    const RunConfig config = config_of(ScheduleKind::kOneFOneB, pp, 16);
    const Result<SimOutcome> run = simulate_run(config, program_with(config, StepTail::kSchedule), 1);
    ASSERT_TRUE(run) << run.error().text();
    EXPECT_TRUE(run->verdict.holds());
    EXPECT_EQ(run->verdict.modes.at(0).makespan, (16 + pp - 1) * 300) << pp;
  }
}

TEST(SimRun, AStepsRecordIsWholeAndRepeats) {
  const RunConfig config = config_of(ScheduleKind::kOneFOneB, 4, 8);
  const Program program = program_with(config, StepTail::kTrain);
  const Result<SimOutcome> a = simulate_run(config, program, 3);
  const Result<SimOutcome> b = simulate_run(config, program, 3);
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(a->verdict.holds());
  EXPECT_EQ(a->record.digest(), b->record.digest());
  EXPECT_EQ(a->record.steps.size(), 3U);
  EXPECT_EQ(a->record.steps[1].begin, a->record.steps[0].end);
  EXPECT_EQ(a->record.events.size() % 3, 0U);
  const Result<RunRecord> read = parse_record(serialize_record(a->record), "r");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->events, a->record.events);
  for (std::size_t i = 1; i < read->events.size(); ++i) {
    const RunEvent& before = read->events[i - 1];
    const RunEvent& event = read->events[i];
    EXPECT_LE(std::tuple(before.step, before.rank, before.start),
              std::tuple(event.step, event.rank, event.start));
    EXPECT_TRUE(event.start <= event.ready && event.ready <= event.end);
  }
}

TEST(SimRun, ADeadlockEndsTheRunAndIsInTheRecord) {
  RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 4);
  Program program = program_with(config, StepTail::kSchedule);
  // The last rank forgets everything after its first computation.
  program.threads[1].end = program.threads[1].begin + 2;
  const Result<SimOutcome> run = simulate_run(config, program, 5);
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->verdict.exit_code(), 3);
  EXPECT_TRUE(run->record.steps.empty());
  EXPECT_TRUE(parse_verdict_json(run->record.verdict_json, "v"));
}

TEST(SimRun, TheMemoryLimitIsAFinding) {
  RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 4);
  const Program program = program_with(config, StepTail::kSchedule);
  config.memory.limit = 1;
  EXPECT_EQ(simulate_run(config, program, 1).value().verdict.exit_code(), 5);
}

}  // namespace
}  // namespace plumbline
