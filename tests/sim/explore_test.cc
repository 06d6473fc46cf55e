// Where one run does not decide: threads that share a rank, processors, calls that depend on how far others are.
#include "sim/explore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/examine.h"
#include "sim/simulator.h"
#include "tests/sim/scenario_lines.h"

namespace plumbline::test {
namespace {

struct Case {
  Program program;
  LinkedProgram linked;
  explicit Case(Program made) : program(std::move(made)), linked(link_program(program).value()) {}
  Case(const Case&) = delete;  // `linked` refers to `program`
  Exploration explored(std::string_view mode, const ExploreOptions& options = {}) const {
    auto result = explore(linked, model_named(mode).value(), {}, options);
    EXPECT_TRUE(result) << result.error().text();
    return result ? *result : Exploration{};
  }
};

Program threads(const std::string& first, const std::string& second, const std::string& other) {
  const std::string text =
      "id = \"threads\"\n[communicators]\nC = [0, 1]\nD = [0, 1]\n[[threads]]\nrank = 0\nhost_ops = [" +
      first + "]\n[[threads]]\nrank = 0\nhost_ops = [" + second + "]\n[[threads]]\nrank = 1\nhost_ops = [" +
      other + "]\n";
  const auto scenario = parse_scenario_toml(text, "threads");
  EXPECT_TRUE(scenario) << scenario.error().text();
  return scenario_program(*scenario).value();
}

TEST(Explore, OneThreadARankIsDecidedByOneRun) {
  const Case plain(program_of_lines("0: send C to 1 8 on S\n1: recv C from 0 8 on S"));
  EXPECT_TRUE(decided_by_one_run(plain.program, default_model()));
  EXPECT_FALSE(decided_by_one_run(plain.program, model_named("rendezvous+sms_4").value()));
  const Exploration explored = plain.explored("rendezvous");
  EXPECT_TRUE(explored.exhaustive);
  EXPECT_EQ(explored.schedules, 1);
  EXPECT_EQ(verdict_class(explored.verdict), "PROVED(every interleaving)");
  EXPECT_TRUE(
      decided_by_one_run(program_of_lines("0: comm_init X 0 1\n1: comm_init X 0 1"), default_model()));
  EXPECT_FALSE(decided_by_one_run(program_of_lines("0: comm_abort C\n1: launch on S"), default_model()));
}

TEST(Explore, ThreadsOfOneRankIssueInAnyOrder) {
  const Case two(threads(R"("recv C from 1 8 on S")", R"("send D to 1 8 on T")",
                         R"("recv D from 0 8 on T", "sync_stream T", "send C to 0 8 on S")"));
  EXPECT_FALSE(decided_by_one_run(two.program, default_model()));
  const Exploration free = two.explored("rendezvous");
  EXPECT_TRUE(free.exhaustive);
  EXPECT_GT(free.schedules, 1);
  EXPECT_TRUE(free.verdict.completes);
  EXPECT_THAT(verdict_class(free.verdict), testing::MatchesRegex("PROVED.all [0-9]+ schedules."));
  // Strict: it hangs if the receive is launched first. The other order alone would complete.
  const Exploration strict = two.explored("rendezvous+strict");
  EXPECT_FALSE(strict.verdict.completes);
  EXPECT_EQ(verdict_class(strict.verdict), "DEADLOCK");
  const Case lucky(threads(R"("send D to 1 8 on T")", R"("recv C from 1 8 on S")",
                           R"("recv D from 0 8 on T", "sync_stream T", "send C to 0 8 on S")"));
  EXPECT_TRUE(simulate(lucky.linked, model_named("rendezvous+strict").value(), {})->completes);
  const Exploration found = lucky.explored("rendezvous+strict");
  EXPECT_FALSE(found.verdict.completes);
  EXPECT_FALSE(found.decisions.empty());
}

TEST(Explore, LabelsMayDependOnTheSchedule) {
  const Case race(threads(R"("send C to 1 8 as a on S")", R"("send C to 1 8 as b on S")",
                          R"("recv C from 0 8 as a on S", "recv C from 0 8 as b on S")"));
  const Exploration explored = race.explored("rendezvous");
  EXPECT_TRUE(explored.verdict.completes);
  EXPECT_EQ(reference_value(explored.verdict), "WRONGDATA");
}

TEST(Explore, ProcessorsGoToWhoeverAsksFirst) {
  // Both ranks launch in one order, on two streams: nothing says which kernel asks first.
  const Case same(
      program_of_lines("0: all_reduce C 8 on S\n0: all_reduce D 8 on T\n"
                       "1: all_reduce C 8 on S\n1: all_reduce D 8 on T"));
  EXPECT_TRUE(simulate(same.linked, model_named("rendezvous+sms_1_by_1").value(), {})->completes);
  EXPECT_FALSE(same.explored("rendezvous+sms_1_by_1").verdict.completes);
  EXPECT_TRUE(same.explored("rendezvous+sms_2_by_1").verdict.completes);
  EXPECT_TRUE(same.explored("rendezvous+strict+sms_1_by_1").verdict.completes);
  const Case one_stream(
      program_of_lines("0: all_reduce C 8 on S\n0: all_reduce D 8 on S\n"
                       "1: all_reduce C 8 on S\n1: all_reduce D 8 on S"));
  const Exploration ordered = one_stream.explored("rendezvous+sms_1_by_1");
  EXPECT_TRUE(ordered.exhaustive);
  EXPECT_TRUE(ordered.verdict.completes);
}

TEST(Explore, UseOfANonblockingCommunicatorDependsOnTheOthers) {
  const Case early(
      program_of_lines("0: comm_init X 0 1 nonblocking\n0: all_reduce X 8 on S\n"
                       "1: comm_init X 0 1 nonblocking\n1: comm_ready X\n1: all_reduce X 8 on S"));
  const Exploration explored = early.explored("rendezvous");
  EXPECT_NE(reference_value(explored.verdict), "OK");
  const Case polled(
      program_of_lines("0: comm_init X 0 1 nonblocking\n0: comm_ready X\n0: all_reduce X 8 on S\n"
                       "1: comm_init X 0 1 nonblocking\n1: comm_ready X\n1: all_reduce X 8 on S"));
  const Exploration good = polled.explored("rendezvous");
  EXPECT_TRUE(good.exhaustive);
  EXPECT_EQ(reference_value(good.verdict), "OK");
}

TEST(Explore, BeyondTheLimitItSamplesFromASeed) {
  const Case two(threads(
      R"("send C to 1 8 on S", "send C to 1 8 on S")", R"("send D to 1 8 on T", "send D to 1 8 on T")",
      R"("recv C from 0 8 on S", "recv C from 0 8 on S", "recv D from 0 8 on T", "recv D from 0 8 on T")"));
  ExploreOptions few;
  few.most_schedules = 3;
  few.samples = 20;
  few.seed = 7;
  const Exploration sampled = two.explored("rendezvous", few);
  EXPECT_FALSE(sampled.exhaustive);
  EXPECT_EQ(sampled.schedules, 23);
  EXPECT_EQ(verdict_class(sampled.verdict), "TESTED(23 schedules, seed 7)");
  EXPECT_TRUE(two.explored("rendezvous").exhaustive);
}

TEST(Explore, ExamineModeSaysWhatItRestsOn) {
  const Case two(threads(R"("recv C from 1 8 on S")", R"("send D to 1 8 on T")",
                         R"("recv D from 0 8 on T", "sync_stream T", "send C to 0 8 on S")"));
  EXPECT_GT(examine_mode(two.linked, default_model(), {})->schedules, 1);
  EXPECT_EQ(examine_mode(two.linked, default_model(), {}, false)->schedules, 1);
}

}  // namespace
}  // namespace plumbline::test
