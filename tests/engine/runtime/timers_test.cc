#include "engine/runtime/timers.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

// Three steps of two ranks; the first one, which warms up, is ten times as slow.
RunRecord small_record() {
  RunRecord record;
  record.ranks = record.stages = 2;
  record.streams = {"compute", "pp"};
  const auto kernel = [&](const char* name, KernelKind kind) {
    EventLabel row;
    row.name = name;
    row.kernel = kind;
    record.labels.push_back(row);
  };
  kernel("F.0", KernelKind::kForward);
  kernel("B.0", KernelKind::kBackward);
  kernel("step", KernelKind::kOptimizerStep);
  kernel("zero", KernelKind::kZeroGrad);
  EventLabel receive;
  receive.communication = true;
  receive.endpoint = EndpointKind::kRecv;
  receive.slot = SlotKind::kActivation;
  record.labels.push_back(receive);
  for (std::int32_t step = 0; step < 3; ++step) {
    const Nanoseconds scale = step == 0 ? 10 : 1, t = step * 100'000;
    StepRow row;
    row.step = step;
    row.begin = t;
    row.end = t + 1'000 * scale;
    record.steps.push_back(row);
    const auto event = [&](Rank rank, std::uint32_t label, Nanoseconds start, Nanoseconds took) {
      record.events.push_back({step, rank, label, 0, 0, -1, t + start, t + start, t + start + took * scale});
    };
    event(0, 3, 0, 50);
    event(0, 0, 100, 200);
    event(0, 1, 500, 100 * (step + 1));  // 200 and 300 in the steps that count
    event(0, 2, 900, 40);
    event(1, 4, 100, 210);
    event(1, 0, 310, 90);
  }
  return record;
}

TEST(Timers, HaveMegatronsNamesAndTheRanksWithLeastAndMost) {
  const std::vector<TimerRow> rows = megatron_timers(small_record());
  ASSERT_EQ(6u, rows.size());
  const auto expect = [&](std::size_t i, const char* name, double least, double most, int ranks) {
    EXPECT_EQ(name, rows[i].name);
    EXPECT_DOUBLE_EQ(least, rows[i].least) << name;
    EXPECT_DOUBLE_EQ(most, rows[i].most) << name;
    EXPECT_EQ(ranks, rows[i].ranks) << name;
  };
  expect(0, "forward-compute", 90.0, 200.0, 2);
  expect(1, "backward-compute", 250.0, 250.0, 1);
  expect(2, "forward-recv", 210.0, 210.0, 1);
  expect(3, "forward-backward", 300.0, 650.0, 2);
  expect(4, "optimizer-inner-step", 40.0, 40.0, 1);
  expect(5, "interval-time", 1000.0, 1000.0, 2);
}

TEST(Timers, ARunThatDidNotTrainHasNone) {
  RunRecord record = small_record();
  for (StepRow& row : record.steps) row.evaluation = true;
  EXPECT_TRUE(megatron_timers(record).empty());
}

}  // namespace
}  // namespace plumbline
