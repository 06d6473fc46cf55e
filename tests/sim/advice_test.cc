// What a verdict says besides yes or no: causes of a hang in words, sensitivity, portability, and changes that help.
#include "sim/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/fix.h"
#include "sim/portability.h"
#include "sim/sensitivity.h"
#include "sim/simulator.h"
#include "tests/sim/scenario_lines.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

constexpr const char* kSendFirst =
    "0: send C to 1 8MiB as a on S\n0: recv C from 1 8MiB as b on S\n"
    "1: send C to 0 8MiB as b on S\n1: recv C from 0 8MiB as a on S";
constexpr const char* kOpposite =
    "0: all_reduce C 8 on S\n0: all_reduce D 8 on T\n1: all_reduce D 8 on T\n1: all_reduce C 8 on S";

Finding deadlock(std::string_view lines, std::string_view mode = "rendezvous") {
  return deadlock_of(examine_lines(lines, mode));
}

TEST(Causes, ACycle) {
  const Finding finding = deadlock(kSendFirst);
  EXPECT_EQ(finding.cause, "cycle");
  EXPECT_THAT(finding.why, HasSubstr("wait for each other in a circle"));
}

TEST(Causes, CreationOrder) {
  const Finding finding =
      deadlock("0: comm_init X 0 1\n0: comm_init Y 0 1\n1: comm_init Y 0 1\n1: comm_init X 0 1");
  EXPECT_EQ(finding.cause, "creation-order");
  EXPECT_THAT(finding.why, HasSubstr("create or end their communicators in different orders"));
}

TEST(Causes, PeerFinished) {
  const Finding finding = deadlock("0: send C to 1 8 on S\n1: launch on S");
  EXPECT_EQ(finding.cause, "peer-finished");
  EXPECT_THAT(finding.why, HasSubstr("Rank 1 receives nothing from rank 0 in communicator C, rank 0 sends 1. "
                                     "Rank 1 is at the end of its step."));
}

TEST(Causes, MissingParticipant) {
  const Finding finding = deadlock("0: all_reduce C 8 on S\n1: all_reduce C 8 on S\n2: launch on S");
  EXPECT_EQ(finding.cause, "missing-participant");
  EXPECT_THAT(finding.why, HasSubstr("Rank 2 takes no part: it makes no collective call in communicator C"));
  EXPECT_EQ(deadlock("0: comm_init X 0 1\n1: launch on S").cause, "missing-participant");
}

TEST(Causes, CountMismatch) {
  const Finding messages = deadlock("0: send C to 1 8 on S\n0: send C to 1 8 on S\n1: recv C from 0 8 on S");
  EXPECT_EQ(messages.cause, "count-mismatch");
  EXPECT_THAT(messages.why, HasSubstr("rank 0 sends 2 messages to rank 1, which receives 1"));
  const Finding calls = deadlock("0: all_reduce C 8 on S\n0: all_reduce C 8 on S\n1: all_reduce C 8 on S");
  EXPECT_EQ(calls.cause, "count-mismatch");
  EXPECT_THAT(calls.why, HasSubstr("rank 0 makes 2 collective calls, rank 1 makes 1"));
}

// ---- sensitivity

std::vector<SensitivityRow> rows_of(std::string_view lines) {
  const Program program = program_of_lines(lines);
  const LinkedProgram linked = link_program(program).value();
  const auto rows = sensitivity(linked, {});
  EXPECT_TRUE(rows) << rows.error().text();
  return rows ? *rows : std::vector<SensitivityRow>{};
}
SensitivityRow row(const std::vector<SensitivityRow>& rows, std::string_view knob) {
  for (const SensitivityRow& one : rows) {
    if (one.knob == knob) return one;
  }
  ADD_FAILURE() << "no row " << knob;
  return {};
}

TEST(Sensitivity, TheSmallestBufferThatHidesAHang) {
  const auto rows = rows_of(kSendFirst);
  const SensitivityRow send = row(rows, "send");
  EXPECT_FALSE(send.holds);
  EXPECT_THAT(send.words, HasSubstr("hangs unless sends of 8 MiB complete alone"));
  EXPECT_EQ(send.breaks, "eager:8388607");
  EXPECT_TRUE(row(rows, "buffers of h100").holds);
  EXPECT_FALSE(row(rows, "buffers of pcie").holds);
  EXPECT_FALSE(row(rows, "registered").holds);
  EXPECT_THAT(row(rows, "connect").words,
              HasSubstr("fails where the first message"));  // the wires are crossed
}

TEST(Sensitivity, MessagesAreCountedToo) {
  std::string lines;
  for (int i = 0; i < 3; ++i) lines += "0: send C to 1 8 on S\n";
  lines += "0: send D to 1 8 on S\n1: recv D from 0 8 on T\n1: sync_stream T";
  for (int i = 0; i < 3; ++i) lines += "\n1: recv C from 0 8 on S";
  const auto rows = rows_of(lines);
  EXPECT_THAT(row(rows, "send").words, HasSubstr("sends of 24 B"));
  EXPECT_THAT(row(rows, "send messages").words, HasSubstr("unless 3 messages"));
}

TEST(Sensitivity, NoKnobHidesAMissingCounterpart) {
  const auto rows = rows_of("0: recv C from 1 8 on S\n1: launch on S");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(rows[0].words, HasSubstr("no knob of the model hides it"));
}

// A call that returns an error was said to hang.
TEST(Sensitivity, ACallThatFailsDoesNotHang) {
  const auto rows = rows_of("0: all_reduce X 8 on S\n0: comm_init X 0 1\n1: comm_init X 0 1");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(rows[0].words, HasSubstr("fails with buffers of any size"));
}

TEST(Sensitivity, EachKnobAlone) {
  const auto opposite = rows_of(kOpposite);
  EXPECT_TRUE(row(opposite, "send").holds);
  EXPECT_EQ(row(opposite, "cross").breaks, "strict");
  EXPECT_TRUE(row(opposite, "hw_queues").holds);
  EXPECT_EQ(row(opposite, "sms").breaks, "1");
  EXPECT_THAT(row(opposite, "sms").words, HasSubstr("processors for 2 kernels"));
  EXPECT_TRUE(row(opposite, "connect").holds);
  EXPECT_EQ(row(opposite, "connect_collectives").breaks, "cold");
  EXPECT_EQ(row(opposite, "launch_blocking").breaks, "true");

  const auto skip = rows_of(
      "0: group on S: send C to 1 8; send C to 2 8\n1: recv C from 0 8 on S\n1: send C to 2 8 on S\n"
      "2: group on S: recv C from 0 8; recv C from 1 8");
  EXPECT_TRUE(row(skip, "cross").holds);
  EXPECT_EQ(row(skip, "connect").breaks, "cold");

  const auto ragged = rows_of(
      "0: group on S: recv C from 2 1MiB; recv C from 2 1MiB\n1: launch on S\n"
      "2: group on S: send C to 0 1MiB; send C to 0 1MiB; send C to 3 1MiB; send C to 3 1MiB; recv C from 3 "
      "1MiB\n"
      "3: group on S: send C to 2 1MiB; recv C from 2 1MiB; recv C from 2 1MiB");
  EXPECT_TRUE(row(ragged, "progress split").holds);
  EXPECT_EQ(row(ragged, "progress split-restart").breaks, "split-restart:2");
}

// ---- portability

std::vector<Finding> lint(std::string_view lines) {
  const Program program = program_of_lines(lines);
  return portability(link_program(program).value());
}

TEST(Portability, GroupsOfAPairAreCutAlike) {
  EXPECT_TRUE(
      lint("0: group on S: send C to 1 8; recv C from 1 8\n1: group on S: recv C from 0 8; send C to 0 8")
          .empty());
  const auto findings =
      lint("0: group on S: send C to 1 8; send C to 1 8\n1: recv C from 0 8 on S\n1: recv C from 0 8 on S");
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rule, "N12");
  EXPECT_EQ(findings[0].operations.size(), 2U);
  // Groups with other ranks may be cut in any way.
  EXPECT_TRUE(
      lint("0: group on S: send C to 1 8; send C to 2 8\n1: recv C from 0 8 on S\n2: recv C from 0 8 on S")
          .empty());
}

TEST(Portability, WhatReleasesDoDifferently) {
  EXPECT_EQ(
      lint("0: group on S: all_reduce C 8; send C to 1 8\n1: group on S: all_reduce C 8; recv C from 0 8")[0]
          .rule,
      "N15");
  EXPECT_EQ(
      lint("0: group on S: all_reduce C 8; all_reduce D 8\n1: group on S: all_reduce D 8; all_reduce C 8")[0]
          .rule,
      "N16");
  EXPECT_TRUE(
      lint("0: group on S: all_reduce C 8; all_reduce D 8\n1: group on S: all_reduce C 8; all_reduce D 8")
          .empty());
  EXPECT_EQ(lint("0: all_reduce C 0 on S\n1: all_reduce C 8 on S")[0].rule, "N60");
  std::string many = "0: group on S: send C to 1 8", there = "\n1: group on S: recv C from 0 8";
  for (int i = 0; i < 63; ++i) {
    many += "; send C to 1 8";
    there += "; recv C from 0 8";
  }
  const auto findings = lint(many + there);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].rule, "N14");
}

// ---- fixes

std::optional<Fix> fix(std::string_view lines, std::string_view mode = "rendezvous") {
  const Program program = program_of_lines(lines);
  return find_fix(program, deadlock_of(examine_lines(lines, mode)), {certification_model(), default_model()},
                  {});
}

TEST(Fixes, SendsFirstOnBothRanksAreGrouped) {
  const auto found = fix(kSendFirst);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->words,
              HasSubstr("put send of a@C to rank 1 and receive of b@C from rank 1 into one group on rank 0"));
  EXPECT_THAT(found->words,
              HasSubstr("put send of b@C to rank 0 and receive of a@C from rank 0 into one group on rank 1"));
  EXPECT_EQ(found->program.items.size(), 4U);
}

TEST(Fixes, OppositeCollectivesAreSwapped) {
  const auto found = fix(kOpposite, "rendezvous+strict");
  ASSERT_TRUE(found);
  // Whatever is hinted, it completes in both modes.
  const LinkedProgram linked = link_program(found->program).value();
  for (const NcclModel& mode : {certification_model(), default_model()})
    EXPECT_TRUE(simulate(linked, mode, {})->completes) << found->words;
}

TEST(Fixes, NothingIsHintedThatDoesNotHelp) {
  // Whatever the order, two messages from 0 meet one receive.
  EXPECT_FALSE(
      fix("0: send C to 1 8 on S\n0: send C to 1 8 on S\n0: recv C from 1 8 on S\n"
          "1: send C to 0 8 on S\n1: recv C from 0 8 on S"));
}

TEST(Advice, FillsAVerdict) {
  const Program program = program_of_lines(kSendFirst);
  const LinkedProgram linked = link_program(program).value();
  Verdict verdict =
      examine_scenario(scenario_of_lines(kSendFirst), {certification_model(), default_model()}).value();
  ASSERT_TRUE(add_advice(linked, {}, {}, verdict));
  EXPECT_FALSE(verdict.sensitivity.empty());
  EXPECT_THAT(deadlock_of(verdict.modes[1]).hint, HasSubstr("into one group"));
  const auto again = parse_verdict_json(verdict_json(verdict), "json");
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(verdict_json(*again), verdict_json(verdict));
  // What holds costs no simulations unless it is asked for.
  const std::string_view good = "0: send C to 1 8 on S\n1: recv C from 0 8 on S";
  const Program fine = program_of_lines(good);
  const LinkedProgram fine_linked = link_program(fine).value();
  Verdict holds = examine_scenario(scenario_of_lines(good), {certification_model(), default_model()}).value();
  ASSERT_TRUE(add_advice(fine_linked, {}, {}, holds));
  EXPECT_TRUE(holds.sensitivity.empty());
  EXPECT_TRUE(holds.portable_safe());
  AdviceOptions always;
  always.always = true;
  ASSERT_TRUE(add_advice(fine_linked, {}, always, holds));
  EXPECT_FALSE(holds.sensitivity.empty());
}

}  // namespace
}  // namespace plumbline::test
