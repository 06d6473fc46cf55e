// hpcaitech/ColossalAI#1175 (L12 of tests/oracles/public_reports): pp = 4, an overflow on rank 2 only. A rank that
// saw one returns before the all-reduce of the norm, the others wait in it for ever. Two repairs: agree on the flag
// first, or let everyone reduce the norm and look at the result.
#include <gtest/gtest.h>

#include "tests/issues/overflow_program.h"

namespace plumbline::test {
namespace {

enum class Order { kLocalReturn, kFlagFirst, kNormThenTest };

Program program_of(OverflowProgram& p, Order order) {
  for (Rank r = 0; r < p.count; ++r) {
    if (order == Order::kNormThenTest) {
      p.launch(r, p.norms);
      p.reduce_norm(r);
      p.launch(r, p.test);
      p.read_and_decide(r);
      p.launch(r, p.step, kArmNo);
      p.launch(r, p.skip, kArmYes);
      p.free_all(r);
      continue;
    }
    p.launch(r, p.check);
    if (order == Order::kFlagFirst) p.reduce_found(r);
    p.read_and_decide(r);
    p.launch(r, p.norms, kArmNo);
    p.reduce_norm(r, kArmNo);
    p.launch(r, p.step, kArmNo);
    p.launch(r, p.skip, kArmYes);
    p.free_all(r, kArmNo);
  }
  return p.b.build();
}

TEST(FamilyL, HpcaitechColossalAI1175LocalReturnHangs) {
  OverflowProgram p(4);
  const Program program = program_of(p, Order::kLocalReturn);
  const Verdict verdict = check(program);
  EXPECT_GE(count(verdict.findings, FindingKind::kDecideUnagreed), 1) << words(verdict);
  EXPECT_NE(verdict.exit_code(), 0);

  OverflowWorker worker(p, {2});
  const SimStep step = run(program, worker);
  ASSERT_FALSE(step.completed);
  ASSERT_EQ(step.findings.size(), 1u);
  EXPECT_EQ(step.findings[0].kind, FindingKind::kDeadlock);
  EXPECT_EQ(worker.stepped, std::set<Rank>{});
  EXPECT_EQ(worker.skipped, std::set<Rank>{2});
  // Who waits, and for whom.
  std::set<Rank> waiting;
  bool names_the_missing = false;
  for (const WaitEdge& edge : step.findings[0].waits) {
    waiting.insert(edge.from.rank);
    names_the_missing = names_the_missing || edge.to.rank == 2;
  }
  EXPECT_EQ(waiting, (std::set<Rank>{0, 1, 3}));
  EXPECT_TRUE(names_the_missing) << step.findings[0].why;

  // Nobody overflowed: the fault does not show.
  OverflowWorker clean(p, {});
  EXPECT_TRUE(run(program, clean).completed);
  EXPECT_EQ(clean.stepped.size(), 4u);
}

TEST(FamilyL, HpcaitechColossalAI1175BothRepairsSkipEverywhere) {
  for (const Order order : {Order::kFlagFirst, Order::kNormThenTest}) {
    OverflowProgram p(4);
    const Program program = program_of(p, order);
    const Verdict verdict = check(program);
    EXPECT_TRUE(verdict.holds()) << words(verdict);
    OverflowWorker worker(p, {2});
    const SimStep step = run(program, worker);
    EXPECT_TRUE(step.completed);
    EXPECT_TRUE(worker.stepped.empty());
    EXPECT_EQ(worker.skipped.size(), 4u);
  }
}

}  // namespace
}  // namespace plumbline::test
