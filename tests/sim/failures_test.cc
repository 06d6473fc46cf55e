// Processes that end and kernels that fault: what the others are told, and that it stays (N39, N76, N82 to N84).
#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "engine/program/text.h"
#include "sim/advice.h"
#include "sim/examine.h"
#include "sim/verify/check.h"
#include "tests/sim/scenario_lines.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

constexpr const char* kNode = "rendezvous";                // all ranks on one node
constexpr const char* kNetwork = "rendezvous+nodes_of_1";  // every link a network link

// "CODE RULE" of the calls that returned an error, in order.
std::vector<std::string> errors_of(const ModeVerdict& verdict) {
  std::vector<std::string> out;
  for (const Finding& finding : verdict.findings) {
    if (finding.kind == FindingKind::kNcclError) out.push_back(finding.code + " " + finding.rule);
  }
  return out;
}

TEST(Failures, AnEndedPeerIsAHangInANodeAndAnErrorOnTheNetwork) {
  const char* lines =
      "0: recv C from 1 8 on S\n1: launch on S\n1: sync_stream S\n1: exit\n1: send C to 0 8 on S";
  const ModeVerdict node = examine_lines(lines, kNode);
  EXPECT_EQ(reference_value(node), "DEADLOCK");
  const Finding hang = deadlock_of(node);
  EXPECT_EQ(hang.cause, "process-ended");
  EXPECT_THAT(hang.why, HasSubstr("The process of rank 1 has ended. Within a node nobody is told"));

  const ModeVerdict network = examine_lines(lines, kNetwork);
  EXPECT_EQ(reference_value(network), "DEADLOCK+ERROR(ncclRemoteError)");
  EXPECT_EQ(errors_of(network), (std::vector<std::string>{"ncclRemoteError N83"}));
  EXPECT_THAT(deadlock_of(network).why, HasSubstr("goes on until ncclCommAbort"));
  EXPECT_THAT(rules_behind(network.findings.front()), testing::Contains("N83"));
}

TEST(Failures, TheErrorStaysUntilTheAbort) {
  const std::string before = "0: recv C from 1 8 on S\n0: comm_sync C\n";
  const std::string after = "\n1: exit\n2: launch on S";
  // Whatever is called on the communicator returns the error; only the abort ends the kernel.
  for (const char* call :
       {"send C to 2 8 on T", "all_reduce C 8 on T", "comm_ready C", "comm_sync C", "comm_finalize C",
        "comm_destroy C", "comm_split C into X 0", "comm_revoke C", "comm_shrink C into X 0"}) {
    const std::string line = std::string("0: ") + call;
    const ModeVerdict stuck = examine_lines(before + line + after, kNetwork);
    EXPECT_EQ(reference_value(stuck), "DEADLOCK+ERROR(ncclRemoteError)") << call;
    EXPECT_EQ(errors_of(stuck), (std::vector<std::string>{"ncclRemoteError N83", "ncclRemoteError N82"}))
        << call;
    const ModeVerdict aborted =
        examine_lines(before + line + "\n0: comm_abort C\n0: sync_device" + after, kNetwork);
    EXPECT_TRUE(aborted.completes) << call;
  }
  // After the abort the communicator is gone, and other communicators are as they were.
  EXPECT_EQ(errors_of(examine_lines(before + "0: comm_abort C\n0: send C to 2 8 on S\n0: send D to 2 8 on T" +
                                        "\n1: exit\n2: recv D from 0 8 on S",
                                    kNetwork)),
            (std::vector<std::string>{"ncclRemoteError N83", "ncclInvalidArgument N87"}));
  // The survivors go on with what an aborting shrink makes of it.
  EXPECT_EQ(value_of_lines("0: all_reduce C 8 on S\n0: comm_sync C\n0: comm_shrink C into X 0 2 abort\n"
                           "0: all_reduce X 8 on S\n0: sync_device\n1: exit\n2: all_reduce C 8 on S\n"
                           "2: comm_sync C\n2: comm_shrink C into X 0 2 abort\n2: all_reduce X 8 on S",
                           kNetwork),
            "ERROR(ncclRemoteError)");
}

TEST(Failures, AWatchdogOfAHealthyCommunicatorWaitsForItsWork) {
  const char* lines =
      "0: recv C from 1 8 on S\n0: comm_sync C\n0: send D to 1 8 on T\n1: recv D from 0 8 on T\n"
      "1: sync_stream T\n1: send C to 0 8 on S";
  EXPECT_EQ(value_of_lines(lines, kNetwork), "DEADLOCK");
  EXPECT_EQ(value_of_lines("0: recv C from 1 8 on S\n0: comm_sync C\n1: send C to 0 8 on S", kNetwork), "OK");
  EXPECT_EQ(value_of_lines("0: comm_sync C\n1: launch on S", kNetwork), "OK");
}

TEST(Failures, OnlyThoseOnOtherNodesAreTold) {
  const char* lines =
      "0: all_reduce C 8 on S\n0: comm_sync C\n0: comm_abort C\n"
      "1: all_reduce C 8 on S\n1: comm_sync C\n1: comm_abort C\n"
      "2: all_reduce C 8 on S\n2: comm_sync C\n2: comm_abort C\n3: exit";
  // Ranks 2 and 3 share a node: rank 2 is not told.
  const ModeVerdict verdict = examine_lines(lines, "rendezvous+nodes_of_2");
  EXPECT_EQ(errors_of(verdict).size(), 2U);
  EXPECT_FALSE(verdict.completes);
  for (const WaitEdge& wait : deadlock_of(verdict).waits) EXPECT_EQ(wait.from.rank, 2);
  EXPECT_EQ(value_of_lines(lines, kNetwork), "ERROR(ncclRemoteError)");
  EXPECT_EQ(value_of_lines(lines, kNode), "DEADLOCK");
}

TEST(Failures, AProcessEndsWithAllItsThreads) {
  const auto scenario = parse_scenario_toml(R"(id = "threads"
[communicators]
C = [0, 1]
D = [0, 1]
[[threads]]
rank = 0
host_ops = ["recv C from 1 8 on S", "sync_stream S", "send D to 1 8 on T"]
[[threads]]
rank = 0
host_ops = ["launch on U", "exit", "send D to 1 8 on T"]
[[threads]]
rank = 1
host_ops = ["recv D from 0 8 on T", "comm_sync D", "comm_abort D"]
[model_options]
ranks_per_node = 1
)",
                                            "threads");
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(reference_value(examine_scenario(*scenario, {NcclModel{}})->modes[0]), "ERROR(ncclRemoteError)");
  EXPECT_EQ(parse_scenario_toml(print_scenario_toml(*scenario), "again").value(), *scenario);
  EXPECT_EQ(parse_scenario_lines(print_scenario_json(*scenario), "again").value().front(), *scenario);
}

TEST(Failures, MeetingsWithAnEndedProcess) {
  // The first member holds the bootstrap's root: who comes later cannot reach it, who waits is never answered.
  const std::string late = "0: launch on S\n0: sync_stream S\n";
  EXPECT_EQ(errors_of(examine_lines(late + "0: comm_init X 1 0\n1: exit")),
            (std::vector<std::string>{"ncclSystemError N83"}));
  EXPECT_EQ(value_of_lines("0: comm_init X 1 0\n1: launch on S\n1: sync_stream S\n1: exit"), "DEADLOCK");
  const Finding lost = deadlock_of(examine_lines(late + "0: comm_init X 0 1\n1: exit"));
  EXPECT_EQ(lost.cause, "process-ended");
  // One that had come before: its sockets are closed.
  const ModeVerdict left = examine_lines(
      "0: comm_init X 0 1 2\n1: comm_init X 0 1 2 nonblocking\n1: launch on S\n1: sync_stream S\n1: exit\n"
      "2: launch on S\n2: sync_stream S\n2: launch on S\n"
      "2: sync_stream S\n2: comm_init X 0 1 2\n2: all_reduce X 8 on S");
  EXPECT_TRUE(left.completes);
  EXPECT_EQ(errors_of(left), (std::vector<std::string>{"ncclRemoteError N83", "ncclRemoteError N83",
                                                       "ncclInvalidArgument N87"}));
  // Of an existing communicator, with or without a network between.
  for (const char* call : {"comm_split C into X 0", "comm_destroy C"}) {
    EXPECT_EQ(errors_of(examine_lines(late + "0: " + call + "\n1: exit")),
              (std::vector<std::string>{"ncclRemoteError N83"}))
        << call;
    EXPECT_EQ(
        errors_of(examine_lines(std::string("0: ") + call + "\n1: launch on S\n1: sync_stream S\n1: exit")),
        (std::vector<std::string>{"ncclRemoteError N83"}))
        << call;
  }
  // A shrink that leaves it out does not meet it.
  EXPECT_EQ(value_of_lines(late + "0: comm_shrink C into X 0\n0: all_reduce X 8 on S\n1: exit"), "OK");
}

TEST(Failures, ConnectionsToAnEndedProcess) {
  const char* lines =
      "0: launch on S\n0: sync_stream S\n0: send C to 1 8 on S\n0: send C to 2 8 on S\n1: exit\n"
      "2: recv C from 0 8 on S";
  const ModeVerdict cold = examine_lines(lines, "rendezvous+cold");
  EXPECT_EQ(errors_of(cold), (std::vector<std::string>{"ncclSystemError N83", "ncclSystemError N82"}));
  EXPECT_FALSE(cold.completes);
  for (const WaitEdge& wait : deadlock_of(cold).waits) EXPECT_EQ(wait.from.rank, 2);
  // The host that stands in the exchange when the process ends goes on as well.
  EXPECT_EQ(errors_of(examine_lines("0: send C to 1 8 on S\n1: launch on S\n1: sync_stream S\n1: exit",
                                    "rendezvous+cold")),
            (std::vector<std::string>{"ncclSystemError N83"}));
  EXPECT_EQ(value_of_lines("0: all_reduce C 8 on S\n1: launch on S\n1: sync_stream S\n1: exit",
                           "rendezvous+cold_collectives"),
            "ERROR(ncclRemoteError)");
}

TEST(Failures, WhatIsBufferedInAProcessIsLostWithIt) {  // N39
  // The large message of rank 2 keeps rank 1 from its receive until rank 0's send is over and its process gone.
  const char* lines =
      "0: send C to 1 8 on S\n0: sync_stream S\n0: exit\n1: recv D from 2 1MiB on S\n1: sync_stream S\n"
      "1: recv C from 0 8 on S\n2: send D to 1 1MiB on S";
  RunConfig config;
  config.time.link = {10, 1e9};
  const auto value = [&](const char* mode) {
    return reference_value(
        examine_scenario(scenario_of_lines(lines), {model_named(mode).value()}, TimeModel(config))->modes[0]);
  };
  EXPECT_EQ(value("eager_2MiB"), "OK");
  EXPECT_EQ(value("eager_2MiB+nodes_of_1"), "DEADLOCK+ERROR(ncclRemoteError)");
}

TEST(Failures, AFaultEndsWhatTheDeviceDoesForNccl) {
  const ModeVerdict verdict = examine_lines(
      "0: recv C from 1 8 on T\n0: fault on S\n0: sync_device\n"
      "0: send C to 1 8 on S\n0: comm_finalize C\n0: comm_abort C\n"
      "1: recv C from 0 8 on S");
  EXPECT_EQ(errors_of(verdict),
            (std::vector<std::string>{"ncclUnhandledCudaError N84", "ncclUnhandledCudaError N84"}));
  for (const WaitEdge& wait : deadlock_of(verdict).waits) EXPECT_EQ(wait.from.rank, 1);
}

TEST(Failures, N76RevokeEndsWorkAndRefusesMore) {
  const std::string stuck = "0: all_reduce C 8 on S\n0: comm_revoke C\n0: sync_device\n";
  const auto codes = [&](const char* call) {
    return errors_of(examine_lines(stuck + call + "\n1: launch on S"));
  };
  EXPECT_EQ(codes("0: all_reduce C 8 on S"), (std::vector<std::string>{"ncclInvalidUsage N76"}));
  EXPECT_EQ(codes("0: comm_finalize C"), (std::vector<std::string>{"ncclInvalidUsage N76"}));
  EXPECT_EQ(codes("0: comm_split C into X 0"), (std::vector<std::string>{"ncclInvalidUsage N76"}));
  EXPECT_EQ(codes("0: comm_revoke C"), (std::vector<std::string>{"ncclInvalidArgument N76"}));
  for (const char* call : {"0: comm_shrink C into X 0", "0: comm_abort C", "0: comm_ready C"}) {
    EXPECT_TRUE(codes(call).empty()) << call;
    EXPECT_TRUE(examine_lines(stuck + call + "\n1: launch on S").completes) << call;
  }
}

// When the process ends is up to the machine: all orders are gone through, and one that goes wrong is found.
TEST(Failures, TheMomentOfTheEndIsExplored) {
  const Program program =
      program_of_lines("0: recv C from 1 8 on S\n0: sync_stream S\n1: send C to 0 8 on S\n1: exit");
  const LinkedProgram linked = link_program(program).value();
  const auto verdict = examine_mode(linked, NcclModel{}, {}, true);
  ASSERT_TRUE(verdict) << verdict.error().text();
  EXPECT_FALSE(verdict->completes);
  const Program waits = program_of_lines(
      "0: recv C from 1 8 on S\n0: sync_stream S\n1: send C to 0 8 on S\n1: sync_stream S\n1: exit");
  const auto safe = examine_mode(link_program(waits).value(), NcclModel{}, {}, true);
  ASSERT_TRUE(safe);
  EXPECT_TRUE(safe->completes && safe->findings.empty());
  EXPECT_GT(safe->schedules, 1);
  EXPECT_EQ(safe->evidence, Evidence::kProved);
}

// Host programs of every kind of call, most of them wrong: whatever happens has an end and, if it hangs, a reason.
std::string random_lines(std::uint64_t seed) {
  const CounterRng rng(seed, "failures");
  std::uint64_t drawn = 0;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng.below(drawn++, n)); };
  const std::vector<const char*> calls = {"send {} to {} 8", "recv {} from {} 8", "all_reduce {} 8",
                                          "broadcast {} root 0 8"};
  const std::vector<const char*> host = {"launch on S",
                                         "sync_stream S",
                                         "sync_device",
                                         "exit",
                                         "fault on T",
                                         "comm_sync {}",
                                         "comm_sync {}",
                                         "comm_abort {}",
                                         "comm_abort {}",
                                         "comm_revoke {}",
                                         "comm_destroy {}",
                                         "comm_ready {}",
                                         "comm_finalize {}",
                                         "comm_init X 0 1 2 nonblocking",
                                         "comm_init X 0 1 2",
                                         "comm_split C into Y 0 2",
                                         "comm_shrink D into Z 0 1 abort",
                                         "comm_shrink C into Z 0 1"};
  std::string out;
  for (int rank = 0; rank < 3; ++rank) {
    for (std::size_t left = 2 + below(5); left > 0; --left) {
      const char* comm = below(2) == 0 ? "C" : "D";
      const auto call = [&] {
        const std::size_t peer = (static_cast<std::size_t>(rank) + 1 + below(2)) % 3;
        return fmt::format(fmt::runtime(calls[below(calls.size())]), comm, peer);
      };
      std::string line = fmt::format("{}: ", rank);
      if (below(5) < 2) {
        line += fmt::format(fmt::runtime(host[below(host.size())]), comm);
      } else if (below(3) == 0) {
        line += fmt::format("group on S: {}; {{ {} }}", call(), call());
      } else {
        line += call() + (below(2) == 0 ? " on S" : " on T");
      }
      out += line + '\n';
    }
  }
  out.pop_back();
  return out;
}

TEST(Failures, WhateverHappensHasAnEndAndAReason) {
  std::int64_t programs = 800;
  if (const char* more = std::getenv("PLUMBLINE_FAILURES"); more != nullptr) programs = std::atoll(more);
  std::set<std::string> codes;
  for (std::int64_t seed = 0; seed < programs; ++seed) {
    const std::string lines = random_lines(static_cast<std::uint64_t>(seed));
    SCOPED_TRACE(lines);
    const auto program = scenario_program(scenario_of_lines(lines));
    if (!program) continue;
    const auto linked = link_program(*program);
    if (!linked) continue;  // a split's caller that is in neither
    for (const char* mode :
         {"rendezvous", "rendezvous+nodes_of_1", "eager_2MiB+nodes_of_2+cold",
          "rendezvous+strict+cold+cold_collectives", "rendezvous+sms_1_by_1+launch_blocking"}) {
      const auto verdict = examine_mode(*linked, model_named(mode).value(), {}, false);
      ASSERT_TRUE(verdict) << verdict.error().text();
      bool hangs = false;
      for (const Finding& finding : verdict->findings) {
        EXPECT_FALSE(finding.why.empty());
        hangs = hangs || finding.kind == FindingKind::kDeadlock;
        if (finding.kind == FindingKind::kNcclError) codes.insert(finding.code);
      }
      EXPECT_EQ(hangs, !verdict->completes);
    }
  }
  EXPECT_EQ(codes, (std::set<std::string>{"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError",
                                          "ncclSystemError", "ncclUnhandledCudaError"}));
}

TEST(Failures, ProgramTextHoldsThem) {
  const Program program =
      program_of_lines("0: fault on S\n0: comm_sync C\n0: comm_revoke C\n0: exit\n1: launch on S");
  EXPECT_FALSE(is_plain(program));
  EXPECT_TRUE(program.extras.failures);
  const std::string text = print_program(program);
  EXPECT_THAT(text, HasSubstr("extras failures\n"));
  EXPECT_THAT(text, HasSubstr("  fail fault stream=S\n"));
  EXPECT_THAT(text, HasSubstr("  fail exit\n"));
  const auto again = parse_program(text, "again");
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(print_program(*again), text);
  EXPECT_EQ(program_digest(*again), program_digest(program));
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"extras failures\n", ""},
                                                        {"fail exit", "fail now"},
                                                        {"fail fault stream=S", "fail fault stream=X"}}) {
    std::string bad = text;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_FALSE(parse_program(bad, "bad")) << from << " -> " << to;
  }
  // Advice does not stumble over them.
  Verdict verdict;
  verdict.modes.push_back(examine_mode(link_program(program).value(), NcclModel{}, {}, false).value());
  AdviceOptions options;
  options.always = true;
  EXPECT_TRUE(add_advice(link_program(program).value(), {}, options, verdict));
}

}  // namespace
}  // namespace plumbline::test
