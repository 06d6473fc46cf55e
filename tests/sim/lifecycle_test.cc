// Creation and end of communicators: what the hosts wait for, what each misuse returns, and how a deadlock of
// hosts is explained. Plans (N13, N14) are at the end.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/text.h"
#include "sim/plan.h"
#include "sim/rules.h"
#include "sim/scenario/examine.h"
#include "tests/support/oracle.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

// Lines "RANK: HOST OPERATION"; communicators C and D hold all ranks.
ModeVerdict examine(std::string_view lines, const NcclModel& model = {}) {
  NcclRule rule;
  rule.number = "test";
  rule.example.program = lines;
  const Scenario scenario = example_scenario(rule);
  const auto verdict = examine_scenario(scenario, {model});
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? verdict->modes.front() : ModeVerdict{};
}
std::string value(std::string_view lines, const NcclModel& model = {}) {
  return reference_value(examine(lines, model));
}

NcclModel cold() { return model_named("rendezvous+cold").value(); }

const Finding& deadlock(const ModeVerdict& verdict) {
  static const Finding kNone;
  for (const Finding& finding : verdict.findings) {
    if (finding.kind == FindingKind::kDeadlock) return finding;
  }
  ADD_FAILURE() << "no deadlock";
  return kNone;
}

TEST(Lifecycle, InitIsAMeetingWithoutDevices) {
  // Rank 0's device is stuck until rank 1, after the meeting, sends.
  EXPECT_EQ(value("0: recv C from 1 8 on S\n0: comm_init X 0 1\n1: comm_init X 0 1\n1: send C to 0 8 on S"),
            "OK");
  EXPECT_EQ(value("0: recv C from 1 8 on S\n0: sync_device\n0: comm_init X 0 1\n"
                  "1: comm_init X 0 1\n1: send C to 0 8 on S"),
            "DEADLOCK");
}

TEST(Lifecycle, ACycleOfCreationIsNamed) {
  const ModeVerdict verdict =
      examine("0: comm_init X 0 1\n0: comm_init Y 0 1\n1: comm_init Y 0 1\n1: comm_init X 0 1");
  const Finding& finding = deadlock(verdict);
  ASSERT_EQ(finding.cycle.size(), 4U);
  EXPECT_THAT(finding.why, HasSubstr("init of X"));
  EXPECT_EQ(rules_behind(finding), (std::vector<std::string>{"N52", "N55", "N69"}));
}

// Rule N17. Without a group a thread gets to its next device when the call before has returned.
TEST(Turns, OneThreadThatCreatesACommunicatorRankByRankHangs) {
  const ModeVerdict verdict = examine("0: comm_init X 0 1\n0: turn C\n1: turn C\n1: comm_init X 0 1");
  const Finding& finding = deadlock(verdict);
  const bool named = std::any_of(finding.cycle.begin(), finding.cycle.end(),
                                 [](const WaitEdge& wait) { return wait.from.text == "turn of C"; });
  EXPECT_TRUE(named) << finding.why;
  EXPECT_THAT(rules_behind(finding), testing::IsSupersetOf({"N17", "N69"}));
  EXPECT_EQ(value("0: comm_init X 0 1\n0: turn C\n1: comm_init X 0 1\n1: turn C"), "OK") << "in one group";
  EXPECT_EQ(value("0: comm_init X 0 1 nonblocking\n0: turn C\n0: comm_ready X\n"
                  "1: turn C\n1: comm_init X 0 1 nonblocking\n1: comm_ready X"),
            "OK");
}

TEST(Turns, TheFirstUseOfAConnectionHangsAndTheSecondDoesNot) {
  const std::string first = "0: send C to 1 8 on S\n0: turn C\n1: turn C\n1: recv C from 0 8 on S";
  EXPECT_EQ(value(first), "OK");
  EXPECT_EQ(value(first, cold()), "DEADLOCK");
  const std::string grouped = "0: send C to 1 8 on S\n0: turn C\n1: recv C from 0 8 on S\n1: turn C";
  EXPECT_EQ(value(grouped, cold()), "OK");
  EXPECT_EQ(value(grouped + "\n" + first, cold()), "OK") << "connected by then";
  NcclModel blocking;
  blocking.launch_blocking = true;
  EXPECT_EQ(value(grouped + "\n" + first, blocking), "DEADLOCK");
}

// The k-th turn of one rank is the k-th of each: what a rank does before its turn is over when another goes on.
TEST(Turns, AreCounted) {
  EXPECT_EQ(value("0: turn C\n0: recv C from 1 8 on S\n0: sync_device\n0: turn C\n"
                  "1: turn C\n1: turn C\n1: send C to 0 8 on S"),
            "DEADLOCK");
  EXPECT_EQ(value("0: turn C\n0: recv C from 1 8 on S\n0: sync_device\n0: turn C\n"
                  "1: turn C\n1: send C to 0 8 on S\n1: turn C"),
            "OK");
  const ModeVerdict short_of_one = examine("0: turn C\n0: turn C\n1: turn C");
  EXPECT_EQ(deadlock(short_of_one).cause, "missing-participant");
}

TEST(Turns, AreNoCallsOfNccl) {
  // Nothing about the communicator matters: it is a list of ranks.
  EXPECT_EQ(value("0: comm_abort C\n0: turn C\n1: turn C\n1: comm_abort C"), "OK");
}

TEST(Turns, OfAProcessThatEndsAreRefused) {
  const Result<Program> program = parse_program(
      "plumbline-program 1\ngrid pp=2\nstages 1\nmicrobatches 1\nfragment\nplacement 0\nstream compute\n"
      "extras failures\nfamily C 0,1\ncommunicator t call=turn family=C\nranks 0\ncomm t\nfail exit\nranks "
      "1\n"
      "comm t\n",
      "turns.txt");
  ASSERT_FALSE(program);
  EXPECT_THAT(program.error().text(), HasSubstr("a process drives several ranks"));
}

TEST(Lifecycle, AMissingMemberIsNamed) {
  const ModeVerdict verdict = examine("0: comm_init X 0 1\n1: launch on S");
  EXPECT_THAT(deadlock(verdict).why, HasSubstr("a call on the communicator that rank 1 never posts"));
}

TEST(Lifecycle, TheKthCreationMeetsTheKth) {
  EXPECT_EQ(value("0: comm_init X 0 1\n0: comm_destroy X\n0: comm_init X 0 1\n0: all_reduce X 8 on S\n"
                  "1: comm_init X 0 1\n1: comm_destroy X\n1: comm_init X 0 1\n1: all_reduce X 8 on S"),
            "OK");
  EXPECT_EQ(value("0: comm_init X 0 1\n0: comm_init X 0 1\n1: comm_init X 0 1"), "DEADLOCK");
}

TEST(Lifecycle, ACreatedCommunicatorIsCold) {
  const std::string_view lines =
      "0: comm_init X 0 1\n0: group on S: send X to 1 8; recv X from 1 8\n0: comm_destroy X\n0: comm_init X "
      "0 1\n"
      "0: send X to 1 8 on S\n0: recv X from 1 8 on S\n"
      "1: comm_init X 0 1\n1: group on S: send X to 0 8; recv X from 0 8\n1: comm_destroy X\n1: comm_init X "
      "0 1\n"
      "1: send X to 0 8 on S\n1: recv X from 0 8 on S";
  EXPECT_EQ(value(lines, model_named("eager_2MiB").value()), "OK");
  EXPECT_EQ(value(lines, model_named("eager_2MiB+cold").value()), "CROSSWIRED");
}

TEST(Lifecycle, NonblockingCallsReturnAndArePolled) {
  EXPECT_EQ(
      value("0: comm_init X 0 1 nonblocking\n0: comm_init Y 0 1\n0: comm_ready X\n0: all_reduce X 8 on S\n"
            "1: comm_init Y 0 1\n1: comm_init X 0 1\n1: all_reduce X 8 on S"),
      "OK");
  // Before it is through, everything but the poll is refused; the member has then not created it a second time.
  EXPECT_EQ(value("0: comm_init X 0 1 nonblocking\n0: comm_finalize X\n1: launch on S"),
            "DEADLOCK+ERROR(ncclInvalidArgument)");
  EXPECT_EQ(value("0: comm_init X 0 1 nonblocking\n0: comm_ready X\n1: launch on S"), "DEADLOCK");
  const ModeVerdict early =
      examine("0: comm_init X 0 1 nonblocking\n0: all_reduce X 8 on S\n1: comm_init X 0 1");
  EXPECT_TRUE(early.completes);
  ASSERT_EQ(early.findings.size(), 1U);
  EXPECT_EQ(early.findings[0].rule, "N79");
  EXPECT_THAT(early.findings[0].why, HasSubstr("returns ncclInvalidArgument: communicator X is used before"));
}

// Rank 0's first use of X connects with rank 1, whose host is elsewhere until it has got something else.
std::string first_use(const std::string& how, const std::string& between,
                      const std::string& mode = "rendezvous+cold") {
  return value("0: comm_init X 0 1" + how + "\n0: comm_ready X\n0: send X to 1 8 on S\n" + between +
                   "0: send D to 1 8 on T\n1: comm_init X 0 1" + how +
                   "\n1: comm_ready X\n1: recv D from 0 8 on T\n1: sync_stream T\n1: recv X from 0 8 on S",
               model_named(mode).value());
}

TEST(Lifecycle, N2aANonblockingFirstUseHoldsItsCommunicatorNotItsHost) {
  EXPECT_EQ(first_use("", ""), "DEADLOCK");
  EXPECT_EQ(first_use(" nonblocking", ""), "OK");
  EXPECT_EQ(first_use(" nonblocking", "", "rendezvous"), "OK");
  // The poll waits for the connection, as the blocking call does.
  EXPECT_EQ(first_use(" nonblocking", "0: comm_ready X\n"), "DEADLOCK");
  EXPECT_EQ(first_use(" nonblocking", "0: comm_ready X\n", "rendezvous"), "OK");
  // Until it is over every other call on the communicator is refused (N79), a connection or not.
  EXPECT_EQ(first_use(" nonblocking", "0: comm_finalize X\n"), "ERROR(ncclInvalidArgument)");
  // What is not enqueued yet does not hold its stream.
  EXPECT_EQ(first_use(" nonblocking", "0: sync_stream S\n"), "OK");
  EXPECT_EQ(first_use(" nonblocking", "0: sync_stream S\n", "rendezvous"), "DEADLOCK");
}

TEST(Lifecycle, N2aSeveralFirstUsesAtOnce) {
  const std::string made = ": comm_init X 0 1 nonblocking\n", ready = ": comm_ready X\n";
  const auto both = [&](const std::string& rank, const std::string& rest) {
    return rank + made + rank + ": comm_init Y 0 1 nonblocking\n" + rank + ready + rank + ": comm_ready Y\n" +
           rest;
  };
  EXPECT_EQ(value(both("0", "0: send X to 1 8 on S\n0: send Y to 1 8 on T\n") +
                      both("1", "1: recv Y from 0 8 on T\n1: recv X from 0 8 on S"),
                  cold()),
            "OK");
  // The same with collectives, whose members all meet (N3).
  EXPECT_EQ(value(both("0", "0: all_reduce X 8 on S\n0: all_reduce Y 8 on T\n") +
                      both("1", "1: all_reduce Y 8 on T\n1: all_reduce X 8 on S"),
                  model_named("rendezvous+cold_collectives").value()),
            "OK");
}

TEST(Lifecycle, N2aAConnectionThatNeverComes) {
  const std::string begin =
      "0: comm_init X 0 1 nonblocking\n0: comm_ready X\n0: send X to 1 8 on S\n"
      "1: comm_init X 0 1 nonblocking\n1: comm_ready X\n";
  // The host is at its end, its operation never gets to the device.
  const ModeVerdict verdict = examine(begin + "1: launch on S", cold());
  EXPECT_THAT(deadlock(verdict).why, HasSubstr("a first call to connect with that rank 1 never posts"));
  // An abort gives it up.
  EXPECT_EQ(value(begin + "1: launch on S\n0: comm_abort X", cold()), "OK");
  // Connections that end in an internal error are reported by the poll.
  EXPECT_EQ(value(begin + "0: comm_ready X\n0: comm_abort X\n1: group on S: send X to 0 8; recv X from 0 8\n"
                          "1: comm_ready X\n1: comm_abort X",
                  cold()),
            "CROSSWIRED+INTERNAL_ERROR(truncated)");
  // So is a peer that is gone.
  EXPECT_EQ(value(begin + "0: comm_ready X\n0: comm_abort X\n1: exit", cold()), "ERROR(ncclSystemError)");
}

TEST(Lifecycle, N75AGrowIsAMeetingOfTheOldAndTheNew) {
  const std::string lines =
      "0: all_reduce X 8 on S\n0: comm_grow X into Y 0 1 2\n0: all_reduce Y 8 on S\n"
      "1: all_reduce X 8 on S\n1: comm_grow X into Y 0 1 2\n1: all_reduce Y 8 on S\n";
  const std::string made = "0: comm_init X 0 1\n1: comm_init X 0 1\n" + lines;
  EXPECT_EQ(value(made + "2: comm_grow X into Y 0 1 2\n2: all_reduce Y 8 on S"), "OK");
  // One that never joins stops all.
  EXPECT_EQ(value(made + "2: launch on S"), "DEADLOCK");
  // What is enqueued on the parent comes before.
  EXPECT_EQ(
      value("0: comm_init X 0 1\n1: comm_init X 0 1\n0: recv X from 1 8 on S\n0: comm_grow X into Y 0 1 2\n"
            "1: comm_grow X into Y 0 1 2\n1: send X to 0 8 on S\n2: comm_grow X into Y 0 1 2"),
      "DEADLOCK");
  // It has to become larger.
  EXPECT_EQ(
      value("0: comm_init X 0 1\n1: comm_init X 0 1\n0: comm_grow X into Y 1 0\n1: comm_grow X into Y 1 0"),
      "ERROR(ncclInvalidArgument)");
}

TEST(Lifecycle, N70ADeviceTwice) {
  EXPECT_EQ(
      value("0: comm_init_all X 0 1\n0: all_reduce X 8 on S\n1: comm_init_all X 0 1\n1: all_reduce X 8 on S"),
      "OK");
  const ModeVerdict verdict = examine("0: comm_init_all X 0 1 1\n1: comm_init_all X 0 1 1");
  EXPECT_EQ(reference_value(verdict), "ERROR(ncclInvalidUsage)");
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_EQ(rules_behind(verdict.findings.front()), std::vector<std::string>{"N70"});
}

TEST(Lifecycle, N72RanksWithOtherReleases) {
  // Both create X and use it; the second may make one call more.
  const auto lines = [](const std::string& first, const std::string& second, const std::string& rest = "") {
    return "0: comm_init X 0 1 " + first + "\n0: all_reduce X 8 on S\n1: comm_init X 0 1 " + second +
           "\n1: all_reduce X 8 on S" + rest;
  };
  EXPECT_EQ(value(lines("release 2.28.9", "release 2.28.9")), "OK");
  EXPECT_EQ(value(lines("release 2.28.9", "")), "OK");
  // None of them has the communicator then: what they call on it is refused, too.
  const ModeVerdict verdict = examine(lines("release 2.28.9", "release 2.27.3"));
  EXPECT_EQ(reference_value(verdict), "ERROR(ncclInvalidArgument)+ERROR(ncclInvalidUsage)");
  EXPECT_THAT(verdict.findings.front().why, HasSubstr("NCCL 2.27.3 and with 2.28.9"));
  // A nonblocking one has the error until it is aborted (N82).
  EXPECT_EQ(value(lines("release 2.28.9 nonblocking", "release 2.27.3 nonblocking", "\n1: comm_ready X")),
            "ERROR(ncclInvalidArgument)+ERROR(ncclInvalidUsage)");
}

TEST(Lifecycle, SplitWaitsForTheParentsQueueAndAllItsRanks) {
  EXPECT_EQ(value("0: comm_split C into X 0 1\n0: all_reduce X 8 on S\n1: comm_split C into X 0 1\n"
                  "1: all_reduce X 8 on S\n2: comm_split C into X 0 1"),
            "OK");
  // Different colours are different communicators of one meeting.
  EXPECT_EQ(value("0: comm_split C into X 0\n0: all_reduce X 8 on S\n1: comm_split C into Y 1 2\n"
                  "1: all_reduce Y 8 on S\n2: comm_split C into Y 1 2\n2: all_reduce Y 8 on S"),
            "OK");
  // Rank 0's send on the parent is served only after the split.
  const ModeVerdict verdict = examine(
      "0: send C to 1 8 on S\n0: comm_split C into X 0 1\n1: comm_split C into X 0 1\n1: recv C from 0 8 on "
      "S");
  EXPECT_FALSE(verdict.completes);
  EXPECT_THAT(rules_behind(deadlock(verdict)), testing::IsSupersetOf({"N69", "N73"}));
}

TEST(Lifecycle, SharingMeansOneQueue) {
  const std::string_view shared =
      "0: comm_split C into X 0 1 share\n0: comm_split C into Y 0 1 share\n0: recv X from 1 8 on S\n"
      "0: send Y to 1 8 on T\n1: comm_split C into X 0 1 share\n1: comm_split C into Y 0 1 share\n"
      "1: recv Y from 0 8 on S\n1: send X to 0 8 on T";
  EXPECT_EQ(value(shared), "DEADLOCK");
  std::string own(shared);
  for (std::size_t at = own.find(" share"); at != std::string::npos; at = own.find(" share"))
    own.erase(at, 6);
  EXPECT_EQ(value(own), "OK");
}

TEST(Lifecycle, ShrinkLeavesOut) {
  EXPECT_EQ(value("0: comm_shrink C into X 0 1\n0: all_reduce X 8 on S\n1: comm_shrink C into X 0 1\n"
                  "1: all_reduce X 8 on S\n2: launch on S"),
            "OK");
  const ModeVerdict left_out = examine("0: comm_shrink C into X 0\n1: comm_shrink C into X 0");
  EXPECT_TRUE(left_out.completes);
  ASSERT_EQ(left_out.findings.size(), 1U);
  EXPECT_EQ(left_out.findings[0].rule, "N74");
  // A stuck operation on the parent: the plain shrink waits for it, the aborting one ends it.
  EXPECT_EQ(value("0: all_reduce C 8 on S\n0: comm_shrink C into X 0\n1: launch on S"), "DEADLOCK");
  EXPECT_EQ(value("0: all_reduce C 8 on S\n0: comm_shrink C into X 0 abort\n0: sync_device\n1: launch on S"),
            "OK");
}

TEST(Lifecycle, FinalizeAndDestroy) {
  EXPECT_EQ(value("0: all_reduce C 8 on S\n0: comm_finalize C\n0: comm_destroy C\n"
                  "1: all_reduce C 8 on S\n1: comm_destroy C"),
            "OK");
  EXPECT_EQ(value("0: comm_finalize C\n0: comm_finalize C\n1: launch on S"), "ERROR(ncclInvalidArgument)");
  EXPECT_EQ(value("0: comm_destroy C\n0: comm_destroy C\n1: comm_destroy C"), "ERROR(ncclInvalidArgument)");
  EXPECT_EQ(value("0: comm_destroy C\n1: launch on S"), "DEADLOCK");
  EXPECT_EQ(value("0: comm_finalize C\n0: all_reduce C 8 on S\n1: launch on S"),
            "ERROR(ncclInvalidArgument)");
  // The flush of a stuck communicator never returns (N78), nonblocking or not: the device stays busy.
  EXPECT_EQ(value("0: recv C from 1 8 on S\n0: comm_finalize C\n1: launch on S"), "DEADLOCK");
  EXPECT_EQ(value("0: recv C from 1 8 on S\n0: comm_finalize C nonblocking\n0: comm_ready C\n1: launch on S"),
            "DEADLOCK");
}

TEST(Lifecycle, AbortEndsWhatIsEnqueuedHereAndOnlyHere) {
  EXPECT_EQ(value("0: recv C from 1 8 on S\n0: comm_abort C\n0: sync_stream S\n1: launch on S"), "OK");
  // The peer of an aborted operation waits on, and is told why; aborted as well, it ends.
  const std::string_view stuck =
      "0: all_reduce D 8 on S\n0: comm_abort D\n0: sync_device\n1: all_reduce D 8 on S";
  EXPECT_FALSE(examine(stuck).completes);
  EXPECT_EQ(value(std::string(stuck) + "\n1: comm_abort D\n1: sync_device"), "OK");
  const std::string_view sent =
      "0: send C to 1 8 on S\n0: comm_abort C\n1: launch on S\n1: recv C from 0 8 on S";
  EXPECT_FALSE(examine(sent).completes);
  // Two in one kernel, one of them matched: the aborted rank is done, its matched peer too.
  EXPECT_EQ(value("0: group on S: send C to 1 8; recv C from 2 8\n0: all_reduce D 8 on T\n0: sync_stream T\n"
                  "0: comm_abort C\n0: sync_device\n1: recv C from 0 8 on S\n1: all_reduce D 8 on T\n"
                  "2: all_reduce D 8 on T"),
            "OK");
  EXPECT_EQ(value("0: comm_abort C\n0: send C to 1 8 on S\n1: launch on S"), "ERROR(ncclInvalidArgument)");
  EXPECT_EQ(value("0: comm_abort C\n0: comm_abort C\n1: launch on S"), "ERROR(ncclInvalidArgument)");
}

TEST(Lifecycle, UseBeforeCreationIsRefused) {
  EXPECT_EQ(value("0: all_reduce X 8 on S\n0: comm_init X 0 1\n1: comm_init X 0 1"),
            "ERROR(ncclInvalidArgument)");
}

TEST(Lifecycle, ThreadsOfARankShareItsDeviceAndEvents) {
  const auto scenario = parse_scenario_toml(R"(id = "threads"
[communicators]
C = [0, 1]
D = [0, 1]
[[threads]]
rank = 0
host_ops = ["recv C from 1 8 on S", "sync_stream S", "record e on S"]
[[threads]]
rank = 0
host_ops = ["send D to 1 8 on T", "sync_event e", "launch on S"]
[[threads]]
rank = 1
host_ops = ["recv D from 0 8 on T", "sync_stream T", "send C to 0 8 on S"]
)",
                                            "threads");
  ASSERT_TRUE(scenario) << scenario.error().text();
  const auto program = scenario_program(*scenario);
  ASSERT_TRUE(program) << program.error().text();
  EXPECT_EQ(program->threads.size(), 3U);
  EXPECT_FALSE(is_plain(*program));
  // One thread alone would wait for its receive before it sends; two do not.
  EXPECT_EQ(reference_value(examine_scenario(*scenario, {NcclModel{}})->modes[0]), "OK");
  EXPECT_EQ(reference_value(examine_scenario(*scenario, {cold()})->modes[0]), "OK");
  // Strict: thread one's receive is launched first, and everything of the rank is behind it.
  EXPECT_EQ(
      reference_value(examine_scenario(*scenario, {model_named("rendezvous+strict").value()})->modes[0]),
      "DEADLOCK");
  const std::string text = print_program(*program);
  EXPECT_THAT(text, HasSubstr("\nranks +0\n"));
  const auto again = parse_program(text, "again");
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(print_program(*again), text);
  EXPECT_EQ(program_digest(*again), program_digest(*program));
}

TEST(Lifecycle, ProgramTextHoldsTheCalls) {
  NcclRule rule;
  rule.number = "test";
  rule.example.program =
      "0: comm_init X 0 1 nonblocking\n0: comm_ready X\n0: comm_split X into Y 0 share\n0: comm_shrink C "
      "into Z 0 abort\n"
      "0: comm_finalize X\n0: comm_destroy X\n0: comm_abort D\n1: comm_init X 0 1\n1: comm_split X into Y 0 "
      "share";
  const auto program = scenario_program(example_scenario(rule));
  ASSERT_TRUE(program) << program.error().text();
  const std::string text = print_program(*program);
  EXPECT_THAT(text, HasSubstr("communicator split.2 call=split family=Y parent=X share\n"));
  EXPECT_THAT(text, HasSubstr("  comm shrink.3\n"));
  const auto again = parse_program(text, "again");
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(print_program(*again), text);
  EXPECT_EQ(program_digest(*again), program_digest(*program));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"call=split", "call=spilt"},
           {"parent=X", "parent=Y"},
           {"parent=X", "parent=W"},
           {"family=Y parent=X share", "family=Y parent=X abort"},
           {"call=shrink family=Z parent=C abort", "call=init family=Z parent=C"},
           {"call=abort family=D", "call=abort family=D peer=rank:1"},
           {"  comm shrink.3", "  comm nothing"},
           {"ranks 1\n", "ranks 1 1\n"},
           {"ranks 1\n", "ranks +1\n"}}) {
    std::string bad = text;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_FALSE(parse_program(bad, "bad")) << from << " -> " << to;
  }
}

// ---- N13, N14

std::vector<std::vector<std::uint32_t>> pieces(const std::vector<sim::PlannedOp>& ops, std::int32_t place,
                                               std::int32_t members, const GroupProgress& progress) {
  std::vector<std::vector<std::uint32_t>> out;
  for (const sim::PlanPiece& piece : sim::plan_pieces(ops, place, members, progress))
    out.push_back(piece.ops);
  return out;
}

TEST(Plan, WithoutALimitAGroupIsOnePiece) {
  EXPECT_EQ(pieces({{1, true}, {2, false}, {1, true}}, 0, 3, {}),
            (std::vector<std::vector<std::uint32_t>>{{0, 1, 2}}));
}

TEST(Plan, ItemsArePairsByEpochAndRound) {
  // At place 0 of 4: round 1 sends to 1 and receives from 3, round 2 sends to 2 and receives from 2.
  const std::vector<sim::PlannedOp> ops{{2, true}, {1, true}, {3, false}, {1, true}, {2, false}};
  GroupProgress one;
  one.plan_items = 1;
  EXPECT_EQ(pieces(ops, 0, 4, one), (std::vector<std::vector<std::uint32_t>>{{1, 2}, {0, 4}, {3}}));
  GroupProgress restart = one;
  restart.plan_restart = true;
  EXPECT_EQ(pieces(ops, 0, 4, restart), (std::vector<std::vector<std::uint32_t>>{{1, 2}, {3}, {0, 4}}));
}

TEST(Plan, BatchesHoldEightRoundsOfOneEpoch) {
  std::vector<sim::PlannedOp> ops;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::int32_t peer = 1; peer < 12; ++peer) ops.push_back({peer, true});
  }
  GroupProgress batched;
  batched.batch = 8;
  batched.batch_epochs = true;
  const auto got = pieces(ops, 0, 12, batched);
  ASSERT_EQ(got.size(), 4U);
  EXPECT_EQ(got[0].size(), 7U);  // rounds 1 to 7; round 8 begins the next eight
  EXPECT_EQ(got[1].size(), 4U);
  EXPECT_EQ(got[2].size(), 7U);
  batched.batch_epochs = false;
  EXPECT_EQ(pieces({{1, true}, {1, true}, {2, true}}, 0, 3, batched),
            (std::vector<std::vector<std::uint32_t>>{{0, 2}, {1}}));  // the same round again begins a batch
}

Scenario ragged() {
  const auto all = parse_scenarios(read_data("oracles/nccl/scenarios.jsonl"), "scenarios");
  for (const Scenario& scenario : *all) {
    if (scenario.id == "plan_split_ragged_2.28.9") return scenario;
  }
  ADD_FAILURE();
  return {};
}

TEST(Plan, RestartingRoundsHangsWhereOneOrderDoesNot) {
  Scenario scenario = ragged();
  const auto value_of = [&](int items, bool restart) {
    scenario.options.max_ops_per_kernel = items;
    scenario.options.plan_restarts_rounds = restart;
    return reference_value(examine_scenario(scenario, {NcclModel{}})->modes[0]);
  };
  EXPECT_EQ(value_of(2, true), "DEADLOCK");
  for (int items = 1; items < 6; ++items) EXPECT_EQ(value_of(items, false), "OK") << items;
  EXPECT_EQ(value_of(0, false), "OK");
  scenario.options.max_ops_per_kernel = 2;
  scenario.options.plan_restarts_rounds = true;
  const auto verdict = examine_scenario(scenario, {NcclModel{}});
  EXPECT_THAT(rules_behind(*verdict), testing::Contains("N14"));
}

}  // namespace
}  // namespace plumbline::test
