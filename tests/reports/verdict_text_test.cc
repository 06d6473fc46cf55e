#include "reports/verdict_text.h"

#include <gtest/gtest.h>

#include "tests/reports/golden.h"
#include "tests/reports/sample_verdict.h"

namespace plumbline {
namespace {

void expect_width(const std::string& text, std::size_t width) {
  for (const std::string_view line : split(text, '\n')) EXPECT_LE(line.size(), width) << line;
}

TEST(WaitCycle, WhatARankIsWaitedForIsCalledItsOwn) {
  EXPECT_EQ(of_rank(1, "1RECV_F0 from rank 0"), "rank 1's 1RECV_F0 from rank 0");
  EXPECT_EQ(of_rank(1, "the host at turn of C"), "rank 1's host at turn of C");
}

TEST(VerdictText, Deadlock) {
  const std::string text = render_verdict(sample::deadlock_verdict());
  expect_golden("deadlock-verdict.txt", text);
  expect_width(text, 80);
}

TEST(VerdictText, Holds) {
  const std::string text = render_verdict(sample::holding_verdict());
  expect_golden("holding-verdict.txt", text);
  expect_width(text, 80);
}

TEST(VerdictText, ManyRanksAndFindingsAreCut) {
  Verdict verdict = sample::holding_verdict();
  for (int k = 0; k < 30; ++k) {
    verdict.findings.push_back(
        {FindingKind::kLeak, {sample::op(k, k, k, "2F5")}, "It is never released.", {}, {}});
    verdict.memory.push_back(verdict.memory[0]);
  }
  const std::string text = render_verdict(verdict);
  EXPECT_NE(text.find("and 20 more findings"), std::string::npos);
  EXPECT_NE(text.find("the 16 largest of 34"), std::string::npos);
  EXPECT_EQ(text.rfind("a tensor is never released", 0), 0u);
}

TEST(VerdictText, ColourOnlyWhenAskedFor) {
  VerdictTextOptions options;
  EXPECT_EQ(render_verdict(sample::deadlock_verdict(), options).find('\x1b'), std::string::npos);
  options.colour = TerminalColour::kAnsi16;
  EXPECT_NE(render_verdict(sample::deadlock_verdict(), options).find('\x1b'), std::string::npos);
}

TEST(WaitCycle, HopsFoldTheEdgesInsideARank) {
  const auto hops = cycle_hops(sample::deadlock_verdict().modes[0].findings[0].cycle);
  ASSERT_EQ(hops.size(), 2u);
  EXPECT_EQ(hops[0].rank, 0);
  EXPECT_EQ(hops[0].needs, "1RECV_F1 from rank 0");
  EXPECT_EQ(hops[0].behind, "is behind it in communicator pp[0]");
  EXPECT_EQ(cycle_line(hops), "0 --SEND_F1--> 1 --SEND_B0--> 0");
  EXPECT_EQ(cycle_sentence(hops),
            "2 ranks wait in a cycle: rank 0 is in 0SEND_F1, which waits for 1RECV_F1 of rank 1, which is "
            "behind its "
            "1SEND_B0, which waits for 0RECV_B0 of rank 0, which is behind its 0SEND_F1.");
}

TEST(WaitCycle, LeadsWithTheDeadlock) {
  Verdict verdict = sample::deadlock_verdict();
  verdict.findings.push_back({FindingKind::kLeak, {}, "", {}, {}});
  std::string mode;
  const Finding* finding = leading_finding(verdict, &mode);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->kind, FindingKind::kDeadlock);
  EXPECT_EQ(mode, "rendezvous+strict+cold");
  EXPECT_EQ(leading_finding(sample::holding_verdict()), nullptr);
}

}  // namespace
}  // namespace plumbline
