// pytorch/pytorch#115710 (L14 of tests/oracles/public_reports): 8 ranks, the overflow flag is max-reduced
// asynchronously, and read before the reduction has finished. Rank 0 skips and halves its scale; the others saw
// their own 0 and go on. The repair: wait for the handle before reading.
#include <gtest/gtest.h>

#include "tests/issues/overflow_program.h"

namespace plumbline::test {
namespace {

constexpr int kRanks = 8;

Program program_of(OverflowProgram& p, bool wait_first) {
  for (Rank r = 0; r < p.count; ++r) {
    p.launch(r, p.check);
    p.reduce_found(r, kAfterCompute | kHandle);
    const Item wait = make_item(ItemOp::kWait, kNoMicrobatch, 0, 0, 1);
    if (wait_first) p.b.add(r, wait);
    p.read_and_decide(r);
    p.launch(r, p.step, kArmNo);
    p.launch(r, p.skip, kArmYes);
    if (!wait_first) p.b.add(r, wait);
    p.b.add(r, make_item(ItemOp::kSyncDevice, kNoMicrobatch, 0, 0, 0));
    p.b.add(r, make_item(ItemOp::kFree, kNoMicrobatch, 0, p.found, 0));
  }
  return p.b.build();
}

// What each rank's torch scaler (scale 2, back-off 0.5) holds afterwards.
std::vector<double> scales_after(const OverflowWorker& worker) {
  std::vector<double> scales;
  for (Rank r = 0; r < kRanks; ++r) scales.push_back(worker.skipped.count(r) > 0 ? 1.0 : 2.0);
  return scales;
}

TEST(FamilyL, PytorchPytorch115710WaitBeforeRead) {
  OverflowProgram p(kRanks);
  const Program program = program_of(p, true);
  const Verdict verdict = check(program);
  EXPECT_TRUE(verdict.holds()) << words(verdict);
  OverflowWorker worker(p, {0});
  EXPECT_TRUE(run(program, worker).completed);
  EXPECT_TRUE(worker.stepped.empty());
  EXPECT_EQ(scales_after(worker), std::vector<double>(kRanks, 1.0));
}

TEST(FamilyL, PytorchPytorch115710ReadBeforeTheReductionHasFinished) {
  OverflowProgram p(kRanks);
  const Program program = program_of(p, false);
  // The checker: nothing makes the read wait for the reduction, on any rank.
  const Verdict verdict = check(program);
  EXPECT_EQ(count(verdict.findings, FindingKind::kReadUnwritten), kRanks) << words(verdict);
  EXPECT_NE(verdict.exit_code(), 0);
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_NE(verdict.findings[0].why.find("nothing makes it wait for"), std::string::npos)
      << verdict.findings[0].why;
  // And in a run where the reduction takes its time, it happens.
  RunConfig slow;
  slow.time.link = {1'000'000, 1e9};
  SimOptions options;
  options.time = TimeModel(slow);
  OverflowWorker worker(p, {0});
  const SimStep step = run(program, worker, options);
  std::vector<double> expected(kRanks, 2.0);
  expected[0] = 1.0;
  EXPECT_EQ(scales_after(worker), expected);
  EXPECT_EQ(worker.stepped.size(), kRanks - 1u);
  EXPECT_TRUE(step.completed);  // nothing hangs: only the check shows the fault before it happens
}

}  // namespace
}  // namespace plumbline::test
