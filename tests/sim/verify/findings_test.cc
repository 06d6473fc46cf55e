// Every kind of finding, on a Program made to have it; and the repaired twin, which has none.
#include <gtest/gtest.h>

#include "tests/sim/verify/builder.h"

namespace plumbline::test {
namespace {

constexpr unsigned kEdges = kAfterCompute | kComputeWaits;

void expect_only(const Program& program, FindingKind kind, int times = 1) {
  const Verdict verdict = check(program);
  EXPECT_EQ(count(verdict.findings, kind), times) << words(verdict);
  EXPECT_EQ(verdict.findings.size(), static_cast<std::size_t>(times)) << words(verdict);
  EXPECT_FALSE(verdict.holds());
}

void expect_holds(const Program& program) {
  const Verdict verdict = check(program);
  EXPECT_TRUE(verdict.holds()) << words(verdict);
  EXPECT_TRUE(verdict.certified());
}

// Rank 0 makes a tensor and sends it, rank 1 receives and uses it; pieces are changed by the tests.
struct Pair {
  explicit Pair(int microbatches = 4) : b(2, microbatches) {
    a = b.slot("a");
    b.family("pp", {{0, 1}});
    make = b.kernel({}, {}, {static_cast<std::uint16_t>(a)});
    use = b.kernel({}, {static_cast<std::uint16_t>(a)}, {});
    look = b.kernel({static_cast<std::uint16_t>(a)}, {}, {});
  }
  Builder b;
  unsigned a, make, use, look;
};

TEST(CheckFindings, PlainPairHolds) {
  Pair p;
  p.b.launch(0, p.make);
  p.b.send(0, 1, p.a);
  p.b.free(0, p.a);
  p.b.recv(1, 0, p.a);
  p.b.launch(1, p.use);
  const Program program = p.b.build();
  expect_holds(program);
  const Verdict verdict = check(program);
  EXPECT_EQ(verdict.operations, 2);  // its kernels are none of F, B, I, W
  EXPECT_EQ(verdict.memory[0].peak, 64);
  EXPECT_EQ(verdict.memory[1].peak_activations, 64);
}

TEST(CheckFindings, LabelMismatch) {
  for (const bool repaired : {false, true}) {
    Pair p;
    for (const int m : {0, 1}) p.b.launch(0, p.make, m);
    for (const int m : {0, 1}) p.b.send(0, 1, p.a, m);
    for (const int m : {0, 1}) p.b.free(0, p.a, m);
    for (const int m : {0, 1}) p.b.recv(1, 0, p.a, repaired ? m : 1 - m);
    for (const int m : {0, 1}) p.b.launch(1, p.use, m);
    if (repaired) {
      expect_holds(p.b.build());
    } else {
      const Program program = p.b.build();
      expect_only(program, FindingKind::kLabelMismatch);
      EXPECT_TRUE(check(program).modes[0].completes);
      EXPECT_EQ(check(program).exit_code(), 1);
    }
  }
}

TEST(CheckFindings, SizeMismatch) {
  for (const Bytes bytes : {32, 64}) {
    Pair p;
    p.b.launch(0, p.make);
    p.b.op(0, p.b.endpoint(EndpointKind::kSend, 0, p.a, 1, false, bytes));
    p.b.free(0, p.a);
    p.b.recv(1, 0, p.a);
    p.b.launch(1, p.use);
    if (bytes == 64) {
      expect_holds(p.b.build());
    } else {
      expect_only(p.b.build(), FindingKind::kSizeMismatch);
    }
  }
}

TEST(CheckFindings, UnmatchedSendNamesIt) {
  Pair p;
  for (const int m : {0, 1, 2}) p.b.launch(0, p.make, m);
  for (const int m : {0, 1, 2}) p.b.send(0, 1, p.a, m);
  for (const int m : {0, 1, 2}) p.b.free(0, p.a, m);
  for (const int m : {0, 2}) p.b.recv(1, 0, p.a, m);
  for (const int m : {0, 2}) p.b.launch(1, p.use, m);
  const Verdict verdict = check(p.b.build());
  ASSERT_EQ(count(verdict.findings, FindingKind::kUnmatched), 1) << words(verdict);
  EXPECT_EQ(verdict.findings.front().operations.front().microbatch, 1);
  EXPECT_FALSE(verdict.modes[0].completes);
  EXPECT_FALSE(verdict.modes[1].completes);
  EXPECT_EQ(verdict.exit_code(), 3);
}

TEST(CheckFindings, CollectiveMismatch) {
  for (const int fault : {0, 1, 2, 3}) {
    Builder b(2);
    const unsigned s = b.slot("s", 64, SlotKind::kOther, false, true);
    b.family("dp", {{0, 1}});
    b.all_reduce(0, s);
    if (fault == 1) b.op(1, b.endpoint(EndpointKind::kAllReduce, 0, s, -1, false, 32), kNoMicrobatch);
    if (fault == 2)
      b.op(1, b.endpoint(EndpointKind::kAllReduce, 0, s, -1, false, 64, ReduceOp::kMax), kNoMicrobatch);
    if (fault == 3) b.op(1, b.endpoint(EndpointKind::kBroadcast, 0, s, 0), kNoMicrobatch);
    if (fault == 0) b.all_reduce(1, s);
    if (fault == 0) {
      expect_holds(b.build());
    } else {
      expect_only(b.build(), FindingKind::kCollectiveMismatch);
    }
  }
}

TEST(CheckFindings, CollectiveMissingOnOneRank) {
  Builder b(2);
  const unsigned s = b.slot("s", 64, SlotKind::kOther, false, true);
  b.family("dp", {{0, 1}});
  b.all_reduce(0, s);
  const Verdict verdict = check(b.build());
  EXPECT_EQ(count(verdict.findings, FindingKind::kCollectiveMismatch), 1) << words(verdict);
  EXPECT_EQ(verdict.exit_code(), 3);
}

TEST(CheckFindings, ReadUnwritten) {
  Pair p;
  p.b.launch(0, p.use);
  expect_only(p.b.build(), FindingKind::kReadUnwritten);
  p.b.program().fragment = true;
  expect_holds(p.b.build());
}

TEST(CheckFindings, ReadOfAReceiveNobodyWaitsFor) {
  Pair p;
  p.b.launch(0, p.make);
  p.b.send(0, 1, p.a);
  p.b.free(0, p.a);
  p.b.recv(1, 0, p.a, 0, kAfterCompute);
  p.b.launch(1, p.look);
  p.b.add(1, make_item(ItemOp::kSyncDevice, kNoMicrobatch, 0, 0, 0));
  p.b.free(1, p.a);
  const Verdict verdict = check(p.b.build());
  EXPECT_EQ(count(verdict.findings, FindingKind::kReadUnwritten), 1) << words(verdict);
  EXPECT_EQ(verdict.findings.size(), 1u);
}

TEST(CheckFindings, SendOfATensorThatMayNotBeThere) {
  Pair p;
  p.b.launch(0, p.make);
  p.b.send(0, 1, p.a, 0, kComputeWaits);
  p.b.free(0, p.a);
  p.b.recv(1, 0, p.a);
  p.b.launch(1, p.use);
  expect_only(p.b.build(), FindingKind::kReadUnwritten);
}

TEST(CheckFindings, ReadFreed) {
  Pair p;
  p.b.launch(0, p.make);
  p.b.launch(0, p.use);
  p.b.launch(0, p.look);
  expect_only(p.b.build(), FindingKind::kReadFreed);
}

TEST(CheckFindings, DoubleWrite) {
  Pair p;
  p.b.launch(0, p.make);
  p.b.launch(0, p.make);
  p.b.launch(0, p.use);
  expect_only(p.b.build(), FindingKind::kDoubleWrite);
}

// A release needs an edge from the send that reads the slot: the stream's, a later wait for a handle, or the
// host's.
TEST(CheckFindings, FreeInUse) {
  enum Cure { kNone, kCompute, kHost, kHandleWait, kHostHandleWait, kEvent, kSyncStream, kFreeAfter };
  for (const Cure cure :
       {kNone, kCompute, kHost, kHandleWait, kHostHandleWait, kEvent, kSyncStream, kFreeAfter}) {
    Pair p;
    p.b.program().events.push_back("sent");
    unsigned flags = kAfterCompute;
    if (cure == kCompute) flags |= kComputeWaits;
    if (cure == kHost) flags |= kHostWaits;
    if (cure == kHandleWait || cure == kHostHandleWait) flags |= kHandle;
    p.b.launch(0, p.make);
    p.b.op(0, p.b.endpoint(EndpointKind::kSend, 0, p.a, 1, cure == kFreeAfter), 0, flags, 3);
    if (cure == kHandleWait) p.b.add(0, make_item(ItemOp::kWait, kNoMicrobatch, 0, 3, 1));
    if (cure == kHostHandleWait) p.b.add(0, make_item(ItemOp::kWait, kNoMicrobatch, kHostWaits, 3, 1));
    if (cure == kEvent) {
      p.b.add(0, make_item(ItemOp::kRecord, kNoMicrobatch, 0, 0, 1));
      p.b.add(0, make_item(ItemOp::kWaitEvent, kNoMicrobatch, 0, 0, 0));
    }
    if (cure == kSyncStream) p.b.add(0, make_item(ItemOp::kSyncStream, kNoMicrobatch, 0, 0, 1));
    if (cure != kFreeAfter) p.b.free(0, p.a);
    p.b.recv(1, 0, p.a);
    p.b.launch(1, p.use);
    const Program program = p.b.build();
    if (cure != kNone) {
      expect_holds(program);
      continue;
    }
    expect_only(program, FindingKind::kFreeInUse);
    const Verdict verdict = check(program);
    ASSERT_EQ(verdict.findings.front().operations.size(), 2u);  // the release and the send
    EXPECT_EQ(item_op(program.items[static_cast<std::size_t>(verdict.findings.front().operations[0].item)]),
              ItemOp::kFree);
    EXPECT_EQ(item_op(program.items[static_cast<std::size_t>(verdict.findings.front().operations[1].item)]),
              ItemOp::kOp);
  }
}

TEST(CheckFindings, Leak) {
  Pair p;
  p.b.launch(0, p.make, 0);
  p.b.launch(0, p.make, 1);
  expect_only(p.b.build(), FindingKind::kLeak);
  EXPECT_NE(check(p.b.build()).findings.front().why.find("1 more"), std::string::npos);
}

TEST(CheckFindings, MemoryLimit) {
  Pair p;
  p.b.launch(0, p.make, 0);
  p.b.launch(0, p.make, 1);
  p.b.launch(0, p.use, 0);
  p.b.launch(0, p.use, 1);
  CheckOptions options;
  options.memory_limit = 127;
  const Verdict verdict = check(p.b.build(), options);
  EXPECT_EQ(count(verdict.findings, FindingKind::kMemoryLimit), 1);
  EXPECT_EQ(verdict.exit_code(), 5);
  options.memory_limit = 128;
  EXPECT_TRUE(check(p.b.build(), options).holds());
}

TEST(CheckFindings, CrossWired) {
  Builder b(2);
  const unsigned x = b.slot("x", 64, SlotKind::kActivation);
  const unsigned y = b.slot("y", 64, SlotKind::kActivation);
  b.program().fragment = true;
  b.family("pp", {{0, 1}});
  b.send(0, 1, x);
  b.recv(0, 1, y);
  b.send(1, 0, y);
  b.recv(1, 0, x);
  const Verdict verdict = check(b.build());
  EXPECT_EQ(count(verdict.modes[0].findings, FindingKind::kCrossWired), 1) << words(verdict);
  EXPECT_EQ(count(verdict.modes[0].findings, FindingKind::kDeadlock), 1) << words(verdict);
}

// Hosts that have met others before they come to the connection that is cross-wired; the one that comes second says so.
TEST(CheckFindings, CrossWiredAfterOtherConnections) {
  for (const bool waits : {false, true}) {
    Builder b(4);
    const unsigned x = b.slot("x");
    b.program().fragment = true;
    b.family("pp", {{0, 1, 2, 3}});
    const unsigned first = kEdges | (waits ? unsigned{kHostWaits} : 0u);
    for (const Rank r : {0, 2}) {
      b.send(r, r + 1, x, 0, first);
      b.recv(r + 1, r, x, 0, first);
    }
    b.send(1, 3, x, 1);
    b.recv(1, 3, x, 2);
    b.send(3, 1, x, 2);
    b.recv(3, 1, x, 1);
    const Verdict verdict = check(b.build());
    ASSERT_EQ(count(verdict.modes[0].findings, FindingKind::kCrossWired), 1) << words(verdict);
    EXPECT_EQ(
        verdict.modes[0].findings[0].why,
        "on first use rank 3 sets up a connection that sends while rank 1 sets up one that sends; in one "
        "message both must mirror each other");
  }
}

// Three ranks, skip connection (NCCL rule N2b): warm it completes, cold it does not.
TEST(CheckFindings, ColdOnlyDeadlock) {
  Builder b(3);
  const unsigned x = b.slot("x");
  b.program().fragment = true;
  b.family("pp", {{0, 1, 2}});
  b.send(0, 1, x, 0, kAfterCompute | kMore);
  b.send(0, 2, x, 1);
  b.recv(1, 0, x, 0);
  b.send(1, 2, x, 2);
  b.recv(2, 0, x, 1, kAfterCompute | kMore);
  b.recv(2, 1, x, 2);
  const Verdict verdict = check(b.build());
  EXPECT_FALSE(verdict.modes[0].completes) << words(verdict);
  EXPECT_TRUE(verdict.modes[1].completes) << words(verdict);
  ASSERT_EQ(verdict.modes[0].findings.size(), 1u);
  EXPECT_EQ(verdict.modes[0].findings[0].cycle.size(), 3u) << words(verdict);
  EXPECT_EQ(verdict.exit_code(), 3);
}

struct Decision {
  Decision(bool reduced, bool whole) : b(2) {
    const unsigned found = b.slot("found_inf", 4, SlotKind::kFoundInf, false);
    const unsigned norm = b.slot("norm", 64, SlotKind::kNormSums, false, true);
    b.family("pp", {{0, 1}});
    b.family("half", {{0}, {1}});
    b.program().variables.push_back({"found_inf", static_cast<std::uint16_t>(found)});
    const unsigned check = b.kernel({}, {}, {static_cast<std::uint16_t>(found)}, KernelKind::kUnscaleCheck);
    const unsigned last = b.kernel({}, {static_cast<std::uint16_t>(found)}, {}, KernelKind::kSkipStep);
    for (const Rank r : {0, 1}) {
      b.launch(r, check, kNoMicrobatch);
      if (reduced) b.all_reduce(r, found, whole ? 0 : 1);
      b.add(r, make_item(ItemOp::kRead, kNoMicrobatch, 0, 0, 0));
      b.add(r, make_item(ItemOp::kDecide, kNoMicrobatch, 0, 0, 0));
      b.all_reduce(r, norm, 0, kEdges | kArmNo);
      b.launch(r, last, kNoMicrobatch);
    }
  }
  Builder b;
};

TEST(CheckFindings, DecideUnagreed) {
  expect_holds(Decision(true, true).b.build());
  expect_only(Decision(true, false).b.build(), FindingKind::kDecideUnagreed, 2);
  expect_only(Decision(false, false).b.build(), FindingKind::kDecideUnagreed, 2);
}

TEST(CheckFindings, BothArmsAreWalked) {
  for (const unsigned arm : {static_cast<unsigned>(kArmYes), static_cast<unsigned>(kArmNo)}) {
    Decision d(true, true);
    const unsigned norm = 1;
    d.b.all_reduce(1, norm, 0, kEdges | arm);  // rank 0 does not
    const Verdict verdict = check(d.b.build());
    EXPECT_EQ(count(verdict.findings, FindingKind::kCollectiveMismatch), 1) << words(verdict);
    EXPECT_FALSE(verdict.modes[0].completes);
    EXPECT_FALSE(verdict.modes[1].completes);
  }
}

// A computation that nobody needs is still due.
TEST(CheckFindings, ComputationMissingOrDoubled) {
  for (const int times : {0, 1, 2}) {
    Builder b(1, 2);
    const unsigned f = b.kernel({}, {}, {}, KernelKind::kForward);
    b.launch(0, f, 0);
    for (int i = 0; i < times; ++i) b.launch(0, f, 1);
    if (times == 1) {
      expect_holds(b.build());
    } else {
      expect_only(b.build(), FindingKind::kStructure);
    }
  }
}

TEST(CheckFindings, WaitForMoreThanTheQueueKeeps) {
  Pair p;
  p.b.add(0, make_item(ItemOp::kWait, kNoMicrobatch, 0, 0, 1));
  EXPECT_EQ(count(check(p.b.build()).findings, FindingKind::kStructure), 1);
}

}  // namespace
}  // namespace plumbline::test
