// The buffer rules against generated programs that lose one wait: what then may race is found, and both operations
// are named - a kernel that reads what is still arriving, a release or an overwrite of what is still being sent.
// Combined calls and overlapped ones.
#include <algorithm>
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/simulator.h"
#include "sim/verify/check.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

Program made(ScheduleKind kind, P2pStyle p2p) {
  RunConfig config = test::config_of(kind, 4, kind == ScheduleKind::kInterleaved ? 2 : 1, 8);
  config.schedule.p2p = p2p;
  auto program = plumbline::program_of(config, default_sizes(config));
  EXPECT_TRUE(program) << program.error().text();
  return program ? *program : Program{};
}

Verdict checked(const Program& program) {
  const auto linked = link_program(program);
  EXPECT_TRUE(linked) << linked.error().text();
  CheckOptions options;
  options.makespan = false;
  const auto verdict = check_program(*linked, options);
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? *verdict : Verdict{};
}

bool is_race(const Finding& finding) {
  return (finding.kind == FindingKind::kReadUnwritten || finding.kind == FindingKind::kFreeInUse) &&
         finding.operations.size() == 2;
}

struct Tally {
  int changes = 0, races = 0, other = 0, harmless = 0;
};

// `change` drops one wait and says whether there was one.
template <typename Change>
void try_all(const Program& program, Change change, Tally& tally) {
  for (std::size_t at = 0; at < program.items.size(); ++at) {
    Program damaged = program;
    if (!change(damaged.items[at])) continue;
    ++tally.changes;
    const Verdict verdict = checked(damaged);
    const bool races = std::any_of(verdict.findings.begin(), verdict.findings.end(), is_race);
    (races ? tally.races : verdict.holds() ? tally.harmless : tally.other) += 1;
    for (const Finding& finding : verdict.findings) {
      if (!is_race(finding)) continue;
      for (const OperationRef& operation : finding.operations)
        EXPECT_THAT(finding.why, testing::HasSubstr(operation.text));
      // One of the two is communication, the other work on the same rank.
      const auto op_of = [&](std::size_t i) {
        return item_op(damaged.items[static_cast<std::size_t>(finding.operations[i].item)]);
      };
      EXPECT_TRUE(op_of(0) == ItemOp::kOp || op_of(1) == ItemOp::kOp) << finding.why;
      EXPECT_EQ(finding.operations[0].rank, finding.operations[1].rank);
    }
  }
}

bool drop_flag(Item& item, unsigned flag) {
  if (item_op(item) != ItemOp::kOp || (item_flags(item) & flag) == 0 ||
      (item_flags(item) & (kArmYes | kArmNo)) != 0)
    return false;
  item =
      make_item(ItemOp::kOp, item_microbatch(item), item_flags(item) & ~flag, item_ref(item), item_aux(item));
  return true;
}

TEST(BufferRules, CombinedCallsThatLoseAnEdge) {
  for (const ScheduleKind kind : {ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved}) {
    const Program program = made(kind, P2pStyle::kBatched);
    ASSERT_TRUE(checked(program).holds());
    Tally after, waits;
    // A call that does not wait for compute sends what may not be there yet. Calls that only receive do not care.
    try_all(
        program, [](Item& item) { return drop_flag(item, kAfterCompute); }, after);
    // Nobody waits for the call: its receive is read, and its send let go, while it is under way.
    try_all(
        program, [](Item& item) { return drop_flag(item, kComputeWaits | kHostWaits); }, waits);
    std::printf(
        "[ edges ] %d that start after compute: %d races, %d harmless; %d waits: %d races, %d harmless\n",
        after.changes, after.races, after.harmless, waits.changes, waits.races, waits.harmless);
    EXPECT_GT(after.races, after.changes / 2);
    EXPECT_GT(waits.changes, 50);
    EXPECT_GT(waits.races, waits.changes * 9 / 10);  // the rest: a later call waits all the same
    EXPECT_EQ(waits.races + waits.harmless, waits.changes);
  }
}

TEST(BufferRules, OverlappedCallsThatLoseAWait) {
  const Program program = made(ScheduleKind::kInterleaved, P2pStyle::kSeparate);
  ASSERT_TRUE(checked(program).holds());
  Tally waits;
  try_all(
      program,
      [](Item& item) {
        if (item_op(item) != ItemOp::kWait && item_op(item) != ItemOp::kWaitSlot) return false;
        item = make_item(ItemOp::kMark, kNoMicrobatch, 0, 0, 0);
        return true;
      },
      waits);
  std::printf("[ waits ] %d: %d races, %d other findings, %d harmless\n", waits.changes, waits.races,
              waits.other, waits.harmless);
  EXPECT_GT(waits.changes, 50);
  EXPECT_EQ(waits.races, waits.changes);
}

}  // namespace
}  // namespace plumbline
