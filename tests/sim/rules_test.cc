// One test a rule of docs/nccl-rules.md, on the smallest program that shows it.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/sim/tiny_program.h"

namespace plumbline::test {
namespace {

NcclModel eager(Bytes bytes) {
  NcclModel model;
  model.send = SendCompletion::kEager;
  model.eager_bytes = bytes;
  return model;
}
NcclModel strict() {
  NcclModel model;
  model.cross = CrossComm::kStrict;
  return model;
}
NcclModel cold() {
  NcclModel model;
  model.connect = Connect::kCold;
  return model;
}
NcclModel blocking() {
  NcclModel model;
  model.launch_blocking = true;
  return model;
}

// All links: 1 microsecond and 1 byte a nanosecond.
TimeModel simple_time() {
  RunConfig config;
  config.time.forward = {100};
  config.time.link = {1000, 1e9};
  return TimeModel(config);
}

TEST(Rules, N1HostGoesOnWhileTheDeviceIsStuck) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  tiny.group(0, tiny.stream("s"), {recv(c, 1)});  // nobody sends
  const ModeVerdict verdict = run_tiny(tiny.finish(), default_model());
  EXPECT_FALSE(verdict.completes);
  ASSERT_EQ(verdict.findings.size(), 1U);
  const Finding& finding = verdict.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::kDeadlock);
  EXPECT_TRUE(finding.cycle.empty());  // the host is at its end; only the device waits
  EXPECT_NE(finding.why.find("a send that rank 1 never posts"), std::string::npos) << finding.why;
}

TEST(Rules, N2ColdConnectionsBlockTheHost) {
  // Skip connection (PiPPy#969): fine when warm; cold, three hosts wait in a ring.
  TinyProgram tiny(3);
  const int c = tiny.comm("c", {0, 1, 2});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1, 8, 1), send(c, 2, 8, 2)});
  tiny.group(1, s, {recv(c, 0, 8, 1)}).group(1, s, {send(c, 2, 8, 3)});
  tiny.group(2, s, {recv(c, 0, 8, 2), recv(c, 1, 8, 3)});
  const Program& program = tiny.finish();
  EXPECT_TRUE(run_tiny(program, default_model()).completes);
  const ModeVerdict verdict = run_tiny(program, cold());
  EXPECT_FALSE(verdict.completes);
  EXPECT_FALSE(has(verdict, FindingKind::kCrossWired));
  EXPECT_EQ(verdict.findings.at(0).cycle.size(), 3U);
}

TEST(Rules, N2BothSendFirstCrossesTheWires) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1)}).group(0, s, {recv(c, 1)});
  tiny.group(1, s, {send(c, 0)}).group(1, s, {recv(c, 0)});
  NcclModel model = eager(64);
  model.connect = Connect::kCold;
  const ModeVerdict verdict = run_tiny(tiny.finish(), model);
  EXPECT_TRUE(verdict.completes);
  EXPECT_TRUE(has(verdict, FindingKind::kCrossWired));
}

TEST(Rules, N2MessagesOfDifferentLengthStopBothHosts) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1), recv(c, 1)});
  tiny.group(1, s, {send(c, 0)}).group(1, s, {recv(c, 0)});
  const ModeVerdict verdict = run_tiny(tiny.finish(), cold());
  EXPECT_FALSE(verdict.completes);
  ASSERT_TRUE(has(verdict, FindingKind::kCrossWired));
  EXPECT_NE(verdict.findings[0].why.find("truncated"), std::string::npos);
}

TEST(Rules, N2ConnectionsLast) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1)}, kHostWaits).group(0, s, {send(c, 1)});
  tiny.group(1, s, {recv(c, 0)}).group(1, s, {recv(c, 0)});
  const Program& program = tiny.finish();
  const LinkedProgram linked = link_program(program).value();
  SimOptions options;
  options.model = cold();
  Simulator simulator(linked, options);
  RunRecord record = record_for(program);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(simulator.run_step(step, record).value().completed);
}

TEST(Rules, N4AStreamIsInOrder) {
  // The kernel behind the receive waits for it; on another stream it does not.
  for (const bool same : {true, false}) {
    TinyProgram tiny(2);
    const int c = tiny.comm("c", {0, 1});
    const int s = tiny.stream("s");
    tiny.group(0, s, {recv(c, 1)}).launch(0, same ? s : kComputeStream);
    tiny.launch(1, s).launch(1, s).group(1, s, {send(c, 0)});
    const ModeVerdict verdict = run_tiny(tiny.finish(), default_model(), simple_time());
    EXPECT_TRUE(verdict.completes);
    EXPECT_EQ(verdict.makespan, 200 + 1008 + (same ? 100 : 0));
  }
}

TEST(Rules, N6OneCommunicatorIsOneQueueWhateverTheStreams) {
  for (const bool one : {true, false}) {
    TinyProgram tiny(2);
    const int a = tiny.comm("a", {0, 1});
    const int b = one ? a : tiny.comm("b", {0, 1});
    const int s1 = tiny.stream("s1");
    const int s2 = tiny.stream("s2");
    tiny.group(0, s1, {recv(a, 1)}).group(0, s2, {send(b, 1)});
    tiny.group(1, s1, {recv(b, 0)}).group(1, s2, {send(a, 0)});
    const ModeVerdict verdict = run_tiny(tiny.finish(), default_model());
    EXPECT_EQ(verdict.completes, !one);
    if (!one) continue;
    const Finding& finding = verdict.findings.at(0);
    ASSERT_EQ(finding.cycle.size(), 4U);
    EXPECT_EQ(finding.cycle[1].reason, "is behind it in communicator a");
  }
}

TEST(Rules, N8N9ACallAloneIsAGroupOfOne) {
  // Grouped, both directions progress together; as two calls, the sends block.
  for (const bool grouped : {true, false}) {
    TinyProgram tiny(2);
    const int c = tiny.comm("c", {0, 1});
    const int s = tiny.stream("s");
    for (const Rank rank : {0, 1}) {
      const Rank peer = 1 - rank;
      if (grouped) {
        tiny.group(rank, s, {send(c, peer), recv(c, peer)});
      } else {
        tiny.group(rank, s, {send(c, peer)}).group(rank, s, {recv(c, peer)});
      }
    }
    EXPECT_EQ(run_tiny(tiny.finish(), default_model()).completes, grouped);
  }
}

TEST(Rules, N11AGroupCompletesAsAWhole) {
  // Rank 0's receive is served, but its send never is: the kernel behind the group never starts.
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1), recv(c, 1)}).launch(0, s).sync_stream(0, s);
  tiny.group(1, s, {send(c, 0)}).sync_stream(1, s);
  const ModeVerdict verdict = run_tiny(tiny.finish(), default_model());
  EXPECT_FALSE(verdict.completes);
  for (const WaitEdge& wait : verdict.findings.at(0).waits) EXPECT_EQ(wait.from.rank, 0);
}

TEST(Rules, N12TheOrderInsideAGroupDoesNotMatter) {
  std::vector<int> order{0, 1, 2, 3};
  std::set<Nanoseconds> makespans;
  do {
    TinyProgram tiny(3);
    const int c = tiny.comm("c", {0, 1, 2});
    const int s = tiny.stream("s");
    const std::vector<TinyOp> ops{send(c, 0, 64, 1), recv(c, 0, 32, 2), send(c, 2, 16, 3), recv(c, 2, 8, 4)};
    std::vector<TinyOp> permuted;
    for (const int i : order) permuted.push_back(ops[static_cast<std::size_t>(i)]);
    tiny.group(1, s, permuted);
    tiny.group(0, s, {send(c, 1, 32, 2), recv(c, 1, 64, 1)});
    tiny.group(2, s, {send(c, 1, 8, 4), recv(c, 1, 16, 3)});
    const ModeVerdict verdict = run_tiny(tiny.finish(), certification_model(), simple_time());
    EXPECT_TRUE(verdict.completes);
    EXPECT_TRUE(verdict.findings.empty());
    makespans.insert(verdict.makespan);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(makespans, std::set<Nanoseconds>{1064});
}

TEST(Rules, N15CollectivesOfAGroupRunBeforeItsMessages) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1), all_reduce(c)});
  tiny.group(1, s, {recv(c, 0)}).group(1, s, {all_reduce(c)});
  EXPECT_FALSE(run_tiny(tiny.finish(), default_model()).completes);
}

TEST(Rules, N16CommunicatorsOfAGroupRunInTheSameOrderEverywhere) {
  TinyProgram tiny(2);
  const int a = tiny.comm("a", {0, 1});
  const int b = tiny.comm("b", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(a, 1, 8, 1), send(b, 1, 8, 2)});
  tiny.group(1, s, {recv(b, 0, 8, 2), recv(a, 0, 8, 1)});
  const Program& program = tiny.finish();
  for (const NcclModel& model : {default_model(), certification_model(), blocking()}) {
    const ModeVerdict verdict = run_tiny(program, model);
    EXPECT_TRUE(verdict.completes) << model.name();
    EXPECT_TRUE(verdict.findings.empty()) << model.name();
  }
}

TEST(Rules, N20N21MatchingIsFirstInFirstOutPerOrderedPair) {
  // Swapped labels of equal size: both arrive, in the other's place.
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1, 8, 1), send(c, 1, 8, 2)});
  tiny.group(1, s, {recv(c, 0, 8, 2), recv(c, 0, 8, 1)});
  const ModeVerdict verdict = run_tiny(tiny.finish(), default_model());
  EXPECT_TRUE(verdict.completes);
  ASSERT_EQ(verdict.findings.size(), 2U);
  EXPECT_EQ(verdict.findings[0].kind, FindingKind::kLabelMismatch);
  EXPECT_NE(verdict.findings[0].why.find("expects data of microbatch 2"), std::string::npos)
      << verdict.findings[0].why;
}

TEST(Rules, N23N24SizesMustAgree) {
  for (const Bytes received : {4, 16}) {
    TinyProgram tiny(2);
    const int c = tiny.comm("c", {0, 1});
    const int s = tiny.stream("s");
    tiny.group(0, s, {send(c, 1, 8, 1)});
    tiny.group(1, s, {recv(c, 0, received, 2)});
    const ModeVerdict verdict = run_tiny(tiny.finish(), default_model());
    EXPECT_TRUE(verdict.completes);
    ASSERT_EQ(verdict.findings.size(), 1U);  // the label is not looked at any more
    EXPECT_EQ(verdict.findings[0].kind, FindingKind::kSizeMismatch);
  }
}

TEST(Rules, N32TheEagerLimitCountsWhatLiesUnreceived) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1, 10)}).group(0, s, {send(c, 1, 10)}).group(0, s, {recv(c, 1, 10)});
  tiny.group(1, s, {send(c, 0, 10)}).group(1, s, {recv(c, 0, 10)}).group(1, s, {recv(c, 0, 10)});
  const Program& program = tiny.finish();
  EXPECT_FALSE(run_tiny(program, default_model()).completes);
  EXPECT_FALSE(run_tiny(program, eager(9)).completes);
  // Rank 1's send leaves at 10 bytes, so that it can receive, and rank 0 needs no buffer for its second.
  EXPECT_TRUE(run_tiny(program, eager(10)).completes);
  NcclModel always;
  always.send = SendCompletion::kAlwaysEager;
  EXPECT_TRUE(run_tiny(program, always).completes);
  EXPECT_EQ(always.name(), "always_eager");
}

TEST(Rules, N32BothSidesNeedTheirWholeBurstBuffered) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  for (const Rank rank : {0, 1}) {
    const Rank peer = 1 - rank;
    tiny.group(rank, s, {send(c, peer, 10)}).group(rank, s, {send(c, peer, 10)});
    tiny.group(rank, s, {recv(c, peer, 10)}).group(rank, s, {recv(c, peer, 10)});
  }
  const Program& program = tiny.finish();
  EXPECT_FALSE(run_tiny(program, eager(19)).completes);
  EXPECT_TRUE(run_tiny(program, eager(20)).completes);
}

TEST(Rules, N32ASendThatNobodyEverReceivesIsNamed) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1)});
  const ModeVerdict verdict = run_tiny(tiny.finish(), eager(8));
  EXPECT_TRUE(verdict.completes);
  EXPECT_TRUE(has(verdict, FindingKind::kUnmatched));
}

TEST(Rules, N46LaunchOrderOfTwoCommunicators) {
  TinyProgram tiny(2);
  const int a = tiny.comm("a", {0, 1});
  const int b = tiny.comm("b", {0, 1});
  const int s1 = tiny.stream("s1");
  const int s2 = tiny.stream("s2");
  tiny.group(0, s1, {all_reduce(a)}).group(0, s2, {all_reduce(b)});
  tiny.group(1, s2, {all_reduce(b)}).group(1, s1, {all_reduce(a)});
  const Program& program = tiny.finish();
  EXPECT_TRUE(run_tiny(program, default_model()).completes);
  EXPECT_FALSE(run_tiny(program, strict()).completes);
  EXPECT_FALSE(run_tiny(program, blocking()).completes);
  const ModeVerdict verdict = run_tiny(program, strict());
  EXPECT_EQ(verdict.findings.at(0).cycle.at(1).reason, "was launched after it on the same device");
}

TEST(Rules, N49LaunchBlockingHoldsTheHost) {
  // The kernel is issued before the host would have been blocked by the receive; with a blocking launch it
  // comes after.
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {recv(c, 1)}).launch(0);
  tiny.launch(1).launch(1).group(1, kComputeStream, {send(c, 0)});
  const Program& program = tiny.finish();
  EXPECT_EQ(run_tiny(program, default_model(), simple_time()).makespan, 200 + 1008);
  EXPECT_EQ(run_tiny(program, blocking(), simple_time()).makespan, 200 + 1008 + 100);
}

TEST(Rules, N57CollectivesMustAgree) {
  TinyProgram tiny(3);
  const int c = tiny.comm("c", {2, 0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {all_reduce(c, 8)}).group(1, s, {all_reduce(c, 16)}).group(2, s, {all_reduce(c, 8)});
  const ModeVerdict verdict = run_tiny(tiny.finish(), default_model());
  EXPECT_TRUE(verdict.completes);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].kind, FindingKind::kCollectiveMismatch);
}

TEST(Rules, N57AMissingMemberIsNamed) {
  TinyProgram tiny(3);
  const int c = tiny.comm("c", {0, 1, 2});
  const int s = tiny.stream("s");
  tiny.group(0, s, {all_reduce(c)}).group(1, s, {all_reduce(c)});
  const ModeVerdict verdict = run_tiny(tiny.finish(), default_model());
  EXPECT_FALSE(verdict.completes);
  EXPECT_NE(verdict.findings.at(0).why.find("a collective that rank 2 never posts"), std::string::npos)
      << verdict.findings.at(0).why;
}

TEST(Rules, N59ACollectiveWaitsForItsLastMember) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {all_reduce(c, 8)});
  tiny.launch(1, s).launch(1, s).group(1, s, {all_reduce(c, 8)});
  const ModeVerdict verdict = run_tiny(tiny.finish(), default_model(), simple_time());
  EXPECT_EQ(verdict.makespan, 200 + 2 * (1000 + 4));
}

TEST(Rules, N60EmptyCollectivesAreDropped) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {all_reduce(c, 0)}, kHostWaits);
  EXPECT_TRUE(run_tiny(tiny.finish(), default_model()).completes);
}

TEST(Rules, N61OneMemberNeedsNobody) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {1});
  const int s = tiny.stream("s");
  tiny.group(1, s, {all_reduce(c)}, kHostWaits);
  EXPECT_TRUE(run_tiny(tiny.finish(), certification_model()).completes);
}

TEST(Rules, AChannelMovesOneMessageAtATime) {
  TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1, 100, 1), send(c, 1, 100, 2), recv(c, 1, 50, 3)});
  tiny.group(1, s, {recv(c, 0, 100, 1), recv(c, 0, 100, 2), send(c, 0, 50, 3)});
  EXPECT_EQ(run_tiny(tiny.finish(), default_model(), simple_time()).makespan,
            2 * 1100);  // the way back is another channel
}

TEST(Rules, ModelNames) {
  EXPECT_EQ(certification_model().name(), "rendezvous+strict+cold");
  EXPECT_EQ(eager(Bytes{2} << 20).name(), "eager_2MiB");
  EXPECT_EQ(eager(1000).name(), "eager_1000B");
  EXPECT_EQ(blocking().name(), "rendezvous+launch_blocking");
}

}  // namespace
}  // namespace plumbline::test
