// Analysis against numbers worked out by hand: 1F1B with 4 ranks, 8 microbatches, F = 1 ms, B = 2 ms, free
// messages. All ranks compute 24 ms; the last rank never waits once it has begun, so the step takes 3 + 24 +
// 3 * 2 = 33 ms.
#include "reports/analysis.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_record.h"

namespace plumbline {
namespace {

constexpr Nanoseconds kMs = 1'000'000;

TEST(Analysis, OneFOneBTimes) {
  const Analysis a = analyze(sample::record_of({}));
  ASSERT_EQ(a.steps.size(), 1u);
  const StepTime& t = a.steps[0].time;
  EXPECT_EQ(t.window, 33 * kMs);
  EXPECT_EQ(t.step_time, 33 * kMs);
  for (int r = 0; r < 4; ++r) {
    const RankTime& rank = t.ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(rank.pipeline, 24 * kMs);
    EXPECT_EQ(rank.idle(), 9 * kMs);
    EXPECT_EQ(rank.place[static_cast<std::size_t>(IdlePlace::kFill)], r * kMs);
    EXPECT_EQ(rank.place[static_cast<std::size_t>(IdlePlace::kDrain)], 2 * r * kMs);
    EXPECT_EQ(rank.internal(), (9 - 3 * r) * kMs);
    EXPECT_DOUBLE_EQ(t.bubble_stage_time(r), (9.0 - 3 * r) / (33 - 3 * r));
  }
  EXPECT_EQ(t.longest, 0);
}

TEST(Analysis, BothMetricsMeetTheTextbook) {
  const Analysis a = analyze(sample::record_of({}));
  ASSERT_TRUE(a.steps[0].formula);
  EXPECT_EQ(a.steps[0].formula->text, "(p-1)/(m+p-1)");
  EXPECT_DOUBLE_EQ(a.steps[0].formula->value, 3.0 / 11);
  EXPECT_DOUBLE_EQ(a.steps[0].time.bubble_makespan(), 3.0 / 11);
  EXPECT_DOUBLE_EQ(a.steps[0].time.bubble_stage_time(), 3.0 / 11);
}

TEST(Analysis, Interleaved) {
  sample::Shape shape;
  shape.chunks = 2;
  const Analysis a = analyze(sample::record_of(shape));
  EXPECT_EQ(a.steps[0].time.window, 57 * kMs);
  ASSERT_TRUE(a.steps[0].formula);
  EXPECT_EQ(a.steps[0].formula->text, "(p-1)/(v*m+p-1)");
  EXPECT_DOUBLE_EQ(a.steps[0].formula->value, 3.0 / 19);
  EXPECT_DOUBLE_EQ(a.steps[0].time.bubble_makespan(), 9.0 / 57);
}

TEST(Analysis, FormulaOnlyWhereItIsKnown) {
  RunRecord record = sample::record_of({});
  record.schedule = "gpipe pp=4 stages=4 m=8";
  EXPECT_TRUE(bubble_formula(record, 8));
  record.schedule = "cases/mine.csv pp=4 stages=4 m=8";
  EXPECT_FALSE(bubble_formula(record, 8));
  EXPECT_EQ(schedule_name(record), "mine.csv");
  record.schedule = "interleaved";
  EXPECT_FALSE(bubble_formula(record, 6)) << "6 is not a multiple of 4";
}

TEST(Analysis, CausesPartitionTheIdleTime) {
  sample::Shape shape;
  shape.latency = 100'000;
  shape.tail = true;
  const Analysis a = analyze(sample::record_of(shape));
  for (const RankTime& rank : a.steps[0].time.ranks) {
    Nanoseconds sum = 0;
    for (const Nanoseconds cause : rank.cause) sum += cause;
    EXPECT_EQ(sum, rank.idle());
    EXPECT_EQ(rank.cause[static_cast<std::size_t>(IdleCause::kHost)], 0);
  }
  // The last rank fills by waiting for its first activation and drains waiting for the agreement on overflow.
  const RankTime& last = a.steps[0].time.ranks[3];
  EXPECT_EQ(last.place[static_cast<std::size_t>(IdlePlace::kDrain)],
            last.cause[static_cast<std::size_t>(IdleCause::kCollective)]);
  EXPECT_GT(last.cause[static_cast<std::size_t>(IdleCause::kRecv)], 0);
  EXPECT_EQ(a.steps[0].time.step_time - a.steps[0].time.window, 100'000 + 1000 + kMs) << "the tail";
}

TEST(Analysis, EveryMessageFindsItsOtherEnd) {
  const RunRecord record = sample::record_of({});
  const Analysis a = analyze(record);
  EXPECT_EQ(a.links.matched, 2 * 3 * 8);
  EXPECT_EQ(a.links.unmatched, 0);
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    const std::int32_t other = a.links.match[i];
    if (other == kNoEvent) continue;
    EXPECT_EQ(a.links.match[static_cast<std::size_t>(other)], static_cast<std::int32_t>(i));
    EXPECT_EQ(record.events[static_cast<std::size_t>(other)].microbatch, record.events[i].microbatch);
    EXPECT_EQ(record.events[static_cast<std::size_t>(other)].rank, record.events[i].peer);
  }
  RunRecord broken = record;
  broken.events.erase(broken.events.begin() + 3);
  const EventLinks links = link_events(broken, step_events(broken));
  EXPECT_LE(links.unmatched, 1);
}

TEST(Analysis, CriticalPathExplainsTheWholeStep) {
  sample::Shape shape;
  shape.latency = 70'000;
  shape.jitter = 0.2;
  shape.tail = true;
  shape.steps = 2;
  const RunRecord record = sample::record_of(shape);
  const Analysis a = analyze(record);
  for (const StepAnalysis& step : a.steps) {
    Nanoseconds sum = step.path.unexplained;
    for (const Nanoseconds time : step.path.by_kind) sum += time;
    EXPECT_EQ(sum, step.path.total);
    EXPECT_EQ(step.path.total, step.time.step_time);
    EXPECT_EQ(step.path.unexplained, 0);
    for (const std::uint32_t i : step.path.events) {
      // Of a message's other end the path takes the start; its end may have slack.
      if (record.labels[record.events[i].label].communication) continue;
      EXPECT_EQ(a.slack[i], 0) << action_name(record, record.events[i]);
    }
  }
}

TEST(Analysis, NothingMaySlipBeyondTheStep) {
  const RunRecord record = sample::record_of({});
  const Analysis a = analyze(record);
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    const Nanoseconds slack = a.slack[i];
    ASSERT_GE(slack, 0);
    EXPECT_LE(record.events[i].end + slack, 33 * kMs);
  }
}

TEST(Analysis, WhyChainEndsWhereTheRankWasBusy) {
  const RunRecord record = sample::record_of({});
  const Analysis a = analyze(record);
  // B0 of rank 0 waits for gradient 0, sent by rank 1 after its B0, and so on to the last rank.
  std::uint32_t b0 = 0;
  for (std::uint32_t i = 0; i < record.events.size(); ++i) {
    if (action_name(record, record.events[i]) == "0B0") b0 = i;
  }
  std::vector<std::string> names;
  for (const std::uint32_t i : cause_chain(a.links, b0, 8))
    names.push_back(action_name(record, record.events[i]));
  const std::vector<std::string> expected{"0B0",      "0RECV_B0", "1SEND_B0", "1B0",
                                          "1RECV_B0", "2SEND_B0", "2B0",      "2RECV_B0"};
  EXPECT_EQ(names, expected);
}

TEST(Analysis, MemoryPeaks) {
  const Analysis a = analyze(sample::record_of({}));
  // Rank r holds 4 - r stashes of 96 MiB at once, and one gradient of 16 MiB while a backward runs.
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(a.peaks[static_cast<std::size_t>(r)].bytes, (640LL + 96 * (4 - r) + 16) << 20);
  }
  EXPECT_EQ(a.peaks[0].at, "B0 of stage 0");
  EXPECT_EQ(a.peaks[3].at, "B0 of stage 3");
}

TEST(Analysis, ShowsAnAppliedStepFirst) {
  sample::Shape shape;
  shape.steps = 4;
  shape.losses = true;  // step 1 overflows
  const Analysis a = analyze(sample::record_of(shape));
  EXPECT_EQ(a.typical, 2);
}

}  // namespace
}  // namespace plumbline
