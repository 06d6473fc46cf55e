// What a host may write beyond one group after the other: nested groups, groups on several streams, graphs, the
// legacy default stream, messages to oneself, calls that NCCL refuses.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/text.h"
#include "sim/scenario/examine.h"
#include "sim/verify/check.h"
#include "tests/sim/scenario_lines.h"

namespace plumbline::test {
namespace {

constexpr const char* kOk = "OK";
constexpr const char* kDeadlock = "DEADLOCK";

// A scenario is one line.
Result<std::vector<Scenario>> parse_json(const std::string& threads) {
  std::string text =
      R"({"id": "x", "communicators": {"C": [0, 1], "D": [0, 1]}, "threads": [)" + threads + "]}";
  std::replace(text.begin(), text.end(), '\n', ' ');
  return parse_scenarios(text, "x");
}
Scenario scenario_of_json(const std::string& threads) {
  const auto scenarios = parse_json(threads);
  EXPECT_TRUE(scenarios) << scenarios.error().text();
  return scenarios ? scenarios->front() : Scenario{};
}
std::string value_of(const Scenario& scenario, std::string_view mode = "rendezvous") {
  const auto verdict = examine_scenario(scenario, {model_named(mode).value()});
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? reference_value(verdict->modes.front()) : std::string();
}
Scenario with_legacy(std::string_view lines) {
  Scenario scenario = scenario_of_lines(lines);
  scenario.legacy_stream = "L";
  return scenario;
}
std::string code_of(std::string_view lines) {
  for (const Finding& finding : examine_lines(lines).findings) {
    if (finding.kind == FindingKind::kNcclError) return finding.code + " " + finding.rule;
  }
  return {};
}

TEST(HostPrograms, N8AGroupInsideAGroupIsPartOfIt) {
  const std::string send = R"({"op": "send", "comm": "C", "peer": 1, "bytes": 8, "label": null})";
  const std::string recv = R"({"op": "recv", "comm": "C", "peer": 1, "bytes": 8, "label": null})";
  const std::string other =
      R"(, {"rank": 1, "host_ops": [{"host": "group", "stream": "S", "ops": [
        {"op": "recv", "comm": "C", "peer": 0, "bytes": 8, "label": null}]},
        {"host": "group", "stream": "S", "ops": [
        {"op": "send", "comm": "C", "peer": 0, "bytes": 8, "label": null}]}]})";
  const auto of = [&](const std::string& ops) {
    return scenario_of_json(R"({"rank": 0, "host_ops": [{"host": "group", "stream": "S", "ops": [)" + ops +
                            "]}]}" + other);
  };
  // One group, however nested: the receive is there although the send does not complete before it.
  const Scenario flat = of(recv + "," + send);
  const Scenario nested =
      of(R"({"op": "group", "ops": [)" + recv + R"(, {"op": "group", "ops": [)" + send + "]}]}");
  EXPECT_EQ(nested.threads, flat.threads);
  EXPECT_EQ(value_of(nested), kOk);
  EXPECT_EQ(value_of(scenario_of_lines("0: recv C from 1 8 on S\n0: send C to 1 8 on S\n"
                                       "1: recv C from 0 8 on S\n1: send C to 0 8 on S")),
            kDeadlock);
  std::string deep = send;
  for (int i = 0; i < 6; ++i) deep = R"({"op": "group", "ops": [)" + deep + "]}";
  const auto refused =
      parse_json(R"({"rank": 0, "host_ops": [{"host": "group", "stream": "S", "ops": [)" + deep + "]}]}");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text(), testing::HasSubstr("deep"));
}

TEST(HostPrograms, N30AllToAllGatherAndScatterAreMessages) {
  // Each end as the messages that it is made of.
  EXPECT_EQ(value_of_lines("0: all_to_all C 8 on S\n1: all_to_all C 8 on S\n2: all_to_all C 8 on S"), kOk);
  EXPECT_EQ(value_of_lines("0: gather C root 1 8 on S\n1: group on S: recv C from 0 8; recv C from 2 8; "
                           "send C to 1 8; recv C from 1 8\n2: send C to 1 8 on S"),
            kOk);
  EXPECT_EQ(value_of_lines("0: scatter C root 0 8 on S\n1: recv C from 0 8 on S\n2: scatter C root 0 8 on S"),
            kOk);
  // They take their turn among the pair's messages, and are no barrier for those whose messages are through.
  EXPECT_EQ(value_of_lines("0: all_to_all C 8 on S\n0: send C to 1 16 on S\n1: recv C from 0 16 on S\n"
                           "1: all_to_all C 8 on S"),
            "BYTES");
  EXPECT_EQ(value_of_lines("0: gather C root 1 8 on S\n0: send D to 2 8 on T\n1: gather C root 1 8 on S\n"
                           "2: recv D from 0 8 on T\n2: sync_stream T\n2: gather C root 1 8 on S"),
            kOk);
  const Scenario scenario = scenario_of_lines("0: gather C root 1 8 on S\n1: group on S: all_to_all C 4KiB");
  EXPECT_EQ(parse_scenario_toml(print_scenario_toml(scenario), "again").value(), scenario);
  EXPECT_EQ(parse_scenario_lines(print_scenario_json(scenario), "again").value().front(), scenario);
  EXPECT_EQ(program_size(scenario_program(scenario).value()).sends, 1 + 2);
}

TEST(HostPrograms, N5AGroupJoinsItsStreams) {
  // The send of D is on T, behind a group whose other half is on T.
  EXPECT_EQ(value_of_lines("0: group on S: send C to 1 8 on S; recv C from 1 8 on T\n0: send D to 1 8 on T\n"
                           "1: recv D from 0 8 on S\n1: group on S: recv C from 0 8; send C to 0 8"),
            kDeadlock);
  EXPECT_EQ(value_of_lines("0: group on S: send C to 1 8 on S; recv C from 1 8 on S\n0: send D to 1 8 on T\n"
                           "1: recv D from 0 8 on S\n1: group on S: recv C from 0 8; send C to 0 8"),
            kOk);
  // And it waits for both: T is held by a receive whose sender waits for the group.
  const Finding joined = deadlock_of(examine_lines(
      "0: recv D from 1 8 on S\n0: group on S: send C to 1 8 on S; recv C from 1 8 on T\n"
      "1: group on S: recv C from 0 8; send C to 0 8\n1: sync_stream S\n1: send D to 0 8 on T"));
  EXPECT_THAT(rules_behind(joined), testing::Contains("N5"));
}

TEST(HostPrograms, N5SeveralCommunicatorsAndStreams) {
  // Two communicators in one group: a kernel each, in one order on both ranks, and the streams join.
  EXPECT_EQ(value_of_lines("0: group on S: all_reduce C 8 on S; all_reduce D 8 on T\n"
                           "1: group on S: all_reduce D 8 on T; all_reduce C 8 on S"),
            kOk);
  EXPECT_EQ(value_of_lines("0: group on S: all_reduce C 8 on S; all_reduce D 8 on T\n"
                           "1: group on S: all_reduce D 8 on T; all_reduce C 8 on S",
                           "rendezvous+group_order_by_call"),
            kDeadlock);
}

TEST(HostPrograms, N18AGraphIsLaunchedAsAWhole) {
  // Inside, streams fork and join as they were captured; outside, everything behind the launch waits for all of it.
  const std::string rank1 = "\n1: recv D from 0 8 on S\n1: send C to 0 8 on S";
  EXPECT_EQ(value_of_lines(
                "0: graph_begin on S\n0: recv C from 1 8 on A\n0: send D to 1 8 on B\n0: graph_end" + rank1),
            kOk);
  EXPECT_EQ(value_of_lines(
                "0: graph_begin on S\n0: recv C from 1 8 on A\n0: graph_end\n0: send D to 1 8 on S" + rank1),
            kDeadlock);
  // Work on another stream, before the launch, does not hold it.
  EXPECT_EQ(value_of_lines(
                "0: recv C from 1 8 on A\n0: graph_begin on S\n0: send D to 1 8 on A\n0: graph_end" + rank1),
            kOk);
  EXPECT_EQ(value_of_lines("0: recv C from 1 8 on A\n0: send D to 1 8 on A" + rank1), kDeadlock);
}

// A capture cannot refer to what is outside of it, nor anything outside to what is inside.
TEST(HostPrograms, N18EdgesAcrossAGraphAreForAllOfIt) {
  const std::string rank1 = "\n1: recv D from 0 8 on S\n1: send C to 0 8 on S";
  // A wait inside for an event of outside holds all of the graph, so that D is not sent before C is there.
  EXPECT_EQ(
      value_of_lines("0: recv C from 1 8 on A\n0: record E on A\n0: graph_begin on S\n0: send D to 1 8 on S\n"
                     "0: wait E on T\n0: launch on T\n0: graph_end" +
                     rank1),
      kDeadlock);
  EXPECT_EQ(value_of_lines("0: recv C from 1 8 on A\n0: record E on A\n0: send D to 1 8 on S\n"
                           "0: wait E on T\n0: launch on T" +
                           rank1),
            kOk);
  // A stream or a host outside that waits for one thing inside waits for everything inside.
  const std::string inside = "0: launch on A\n0: record E on A\n0: recv C from 1 8 on B\n";
  for (const std::string wait :
       {"0: wait E on T\n0: send D to 1 8 on T", "0: sync_event E\n0: send D to 1 8 on T"}) {
    EXPECT_EQ(value_of_lines("0: graph_begin on S\n" + inside + "0: graph_end\n" + wait + rank1), kDeadlock)
        << wait;
    EXPECT_EQ(value_of_lines(inside + wait + rank1), kOk) << wait;
  }
}

// While it captures, a host launches nothing: it waits for no kernel, but for connections it does.
TEST(HostPrograms, N18ACaptureWaitsForConnectionsAlone) {
  const std::string graphs =
      "0: graph_begin on S\n0: send C to 1 8 on A\n0: recv C from 1 8 on A\n0: graph_end\n"
      "1: graph_begin on S\n1: recv C from 0 8 on A\n1: send C to 0 8 on A\n1: graph_end";
  for (const char* mode : {"rendezvous", "rendezvous+cold", "rendezvous+launch_blocking"})
    EXPECT_EQ(value_of_lines(graphs, mode), kOk) << mode;
  const Finding finding = deadlock_of(
      examine_lines("0: graph_begin on S\n0: send C to 1 8 on A\n0: recv D from 1 8 on A\n0: graph_end\n"
                    "1: graph_begin on S\n1: send D to 0 8 on A\n1: recv C from 0 8 on A\n1: graph_end",
                    "rendezvous"));
  EXPECT_FALSE(finding.operations.empty());
}

TEST(HostPrograms, N18AGroupIsCapturedOrItIsNot) {
  const auto around = [](const std::string& group, const std::string& rest = "") {
    return "0: graph_begin on S\n0: group on A: " + group + "\n0: graph_end\n" + rest;
  };
  // One communicator: the call is refused, and the communicator is as good as before.
  const std::string one = around("send C to 1 8; recv C from 1 8 on T uncaptured", "0: send C to 1 8 on S\n");
  EXPECT_EQ(value_of_lines(one + "1: recv C from 0 8 on S"), "ERROR(ncclInvalidUsage)");
  // Two: they have the error for good (N82).
  const std::string two = around("all_reduce C 8; all_reduce D 8 on T uncaptured", "0: send C to 1 8 on S\n");
  EXPECT_EQ(value_of_lines(two + "1: recv C from 0 8 on S"), "DEADLOCK+ERROR(ncclInvalidUsage)");
  EXPECT_EQ(value_of_lines(around("all_reduce C 8; all_reduce D 8 on T") +
                           "1: group on S: all_reduce C 8; all_reduce D 8"),
            "OK");
  for (const char* refused :
       {"1: launch on S\n0: group on S: send C to 1 8; recv C from 1 8 uncaptured",
        "1: launch on S\n0: graph_begin on S\n0: group on A: send C to 1 8 uncaptured\n0: graph_end"}) {
    const auto program = scenario_program(scenario_of_lines(refused));
    ASSERT_FALSE(program) << refused;
    EXPECT_NE(program.error().text().find("it goes before the graph"), std::string::npos)
        << program.error().text();
  }
}

TEST(HostPrograms, N37SendsOfAGraphAreRegistered) {
  const std::string body = "0: send C to 1 8 on S\n0: recv C from 1 8 on S\n";
  const std::string other = "1: send C to 0 8 on S\n1: recv C from 0 8 on S";
  EXPECT_EQ(value_of_lines(body + other, "eager_2MiB"), kOk);
  EXPECT_EQ(value_of_lines("0: graph_begin on S\n" + body + "0: graph_end\n" + other, "eager_2MiB"), kOk);
  EXPECT_EQ(value_of_lines("0: graph_begin on S\n" + body + "0: graph_end\n1: graph_begin on S\n" + other +
                               "\n1: graph_end",
                           "eager_2MiB"),
            kDeadlock);
}

TEST(HostPrograms, N53TheLegacyStreamWaitsForAll) {
  const char* lines =
      "0: recv C from 1 8 on S\n0: launch on L\n0: send D to 1 8 on T\n"
      "1: recv D from 0 8 on T\n1: sync_stream T\n1: send C to 0 8 on S";
  EXPECT_EQ(value_of(scenario_of_lines(lines)), kOk);
  EXPECT_EQ(value_of(with_legacy(lines)), kDeadlock);
  const auto verdict = examine_scenario(with_legacy(lines), {default_model()});
  EXPECT_THAT(rules_behind(deadlock_of(verdict->modes.front())), testing::Contains("N53"));
}

TEST(HostPrograms, N25AMessageToOneself) {
  EXPECT_EQ(value_of_lines("0: group on S: send C to 0 8; recv C from 0 8\n1: launch on S"), kOk);
  EXPECT_EQ(code_of("0: send C to 0 8 on S\n1: launch on S"), "ncclInvalidUsage N25");
  EXPECT_EQ(code_of("0: recv C from 0 8 on S\n1: launch on S"), "ncclInvalidUsage N25");
  EXPECT_EQ(code_of("0: group on S: send C to 0 8; recv D from 0 8\n1: launch on S"), "ncclInvalidUsage N25");
  // Nothing of a refused group is launched (N10): its peer waits for ever.
  EXPECT_EQ(value_of_lines("0: group on S: send C to 0 8; send C to 1 8\n1: recv C from 0 8 on S"),
            "DEADLOCK+ERROR(ncclInvalidUsage)");
}

// Found by fuzz_program: the proof knew no refused groups, and saw a deadlock where NCCL returns an error.
TEST(HostPrograms, N25IsNotForTheProofToDecide) {
  const auto provable = [](const char* lines) {
    const Program program = program_of_lines(lines);
    const LinkedProgram linked = link_program(program).value();
    EXPECT_EQ(is_provable(linked), check_program(linked).has_value());
    return is_provable(linked);
  };
  EXPECT_TRUE(provable("0: group on S: send C to 0 8; recv C from 0 8\n1: launch on S"));
  EXPECT_TRUE(
      provable("0: group on S: send C to 0 8; send C to 1 8; recv C from 0 8\n1: recv C from 0 8 on S"));
  EXPECT_FALSE(
      provable("0: group on S: send C to 0 8; recv C from 0 8\n0: send C to 0 8 on S\n1: launch on S"));
  EXPECT_FALSE(provable("0: send C to 0 8 on S\n0: recv C from 0 8 on S\n1: launch on S"));
}

TEST(HostPrograms, N61OneRankAloneTakesNoTurn) {
  const std::string alone = "0: comm_init X 0\n";
  // Strict: a collective of one rank is a copy; one of two would keep what is behind it from starting.
  EXPECT_EQ(value_of_lines(alone + "0: recv C from 1 8 on S\n0: all_reduce X 8 on T\n0: sync_stream T\n"
                                   "0: recv D from 1 8 on T\n1: send C to 0 8 on S\n1: send D to 0 8 on S",
                           "rendezvous+strict"),
            kOk);
  EXPECT_EQ(value_of_lines("0: recv C from 1 8 on S\n0: all_reduce D 8 on T\n0: sync_stream T\n"
                           "1: all_reduce D 8 on T\n1: sync_stream T\n1: send C to 0 8 on S",
                           "rendezvous+strict"),
            kDeadlock);
}

TEST(HostPrograms, N80BlockingAndNonblockingInOneGroup) {
  EXPECT_EQ(
      code_of(
          "0: comm_init X 0 1 nonblocking\n0: comm_ready X\n0: group on S: all_reduce X 8; all_reduce C 8\n"
          "1: comm_init X 0 1 nonblocking\n1: comm_ready X\n1: group on S: all_reduce X 8; all_reduce C 8"),
      "ncclInvalidArgument N80");
}

TEST(HostPrograms, TextsReadBack) {
  const char* lines =
      "0: graph_begin on S\n0: group on S: send C to 1 8; recv C from 1 8 on T\n0: graph_end\n"
      "0: launch on L\n1: group on S: recv C from 0 8 on T; send C to 0 8";
  const Scenario scenario = with_legacy(lines);
  EXPECT_EQ(*parse_scenario_toml(print_scenario_toml(scenario), "t"), scenario);
  EXPECT_EQ(parse_scenarios(print_scenario_json(scenario), "j")->front(), scenario);
  const auto program = scenario_program(scenario);
  ASSERT_TRUE(program) << program.error().text();
  EXPECT_FALSE(is_plain(*program));
  const auto again = parse_program(print_program(*program), "p");
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(again->extras, program->extras);
  EXPECT_EQ(program_digest(*again), program_digest(*program));
}

TEST(HostPrograms, WhatAGraphCannotHoldIsRefused) {
  const struct {
    const char* lines;
    const char* why;
  } cases[] = {
      {"0: graph_begin on S\n0: sync_device\n0: graph_end\n1: launch on S",
       "waits on the host inside a graph"},
      {"0: graph_begin on S\n0: graph_begin on T\n0: graph_end\n1: launch on S",
       "begins a graph inside a graph"},
      {"0: graph_end\n1: launch on S", "ends a graph that it did not begin"},
      {"0: graph_begin on S\n1: launch on S", "ends inside a graph"},
  };
  for (const auto& c : cases) {
    const auto verdict = examine_scenario(scenario_of_lines(c.lines), {default_model()});
    ASSERT_FALSE(verdict) << c.lines;
    EXPECT_THAT(verdict.error().text(), testing::HasSubstr(c.why));
  }
}

}  // namespace
}  // namespace plumbline::test
