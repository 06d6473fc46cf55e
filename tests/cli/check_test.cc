// check, sim, record, show and report as a user starts them: what they print, and their exit codes.
#include <chrono>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "sim/verdict.h"
#include "tests/cli/run_program.h"

namespace plumbline {
namespace {

class Check : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "plumbline_check_" + test->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string file(const std::string& name, std::string_view text) const {
    EXPECT_TRUE(write_file(path(name), text).has_value());
    return path(name);
  }

 private:
  std::string folder_;
};

constexpr std::string_view kHang = "0SEND_F1,2RECV_F0\n1SEND_F0,1RECV_F1\n";

// A run with a batch schedule executes several Programs; all are checked.
TEST_F(Check, EveryProgramOfARunIsChecked) {
  const Outcome outcome =
      run_plumbline("check --pp 2 --step-batch-size-schedule '0:4 8:8 24:4' --train-iters 8");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("m=4"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("m=8"), std::string::npos) << outcome.out;
  const Outcome overlapped = run_plumbline(
      "check --pp 2 --dp 2 -m 4 --fp16 --use-distributed-optimizer --overlap-grad-reduce "
      "--overlap-param-gather");
  EXPECT_EQ(overlapped.code, 0) << overlapped.err;
  EXPECT_NE(overlapped.out.find("forward-only"), std::string::npos) << overlapped.out;
  EXPECT_NE(overlapped.out.find("param-sync"), std::string::npos) << overlapped.out;
}

TEST_F(Check, ConfigurationHolds) {
  const Outcome outcome = run_plumbline("check --pp 4 --microbatches 8");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("holds"), std::string::npos);
}

TEST_F(Check, HangOfAFragment) {
  const std::string hang = file("hang.csv", kHang);
  EXPECT_EQ(run_plumbline("check --fragment " + hang).code, 3);
  const Outcome outcome = run_plumbline("check --fragment --json " + hang);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  const auto verdict = parse_verdict_json(outcome.out, "json");
  ASSERT_TRUE(verdict.has_value()) << verdict.error().text();
  EXPECT_EQ(verdict->modes[0].findings.back().cycle.size(), 2u);
  // The same rows from standard input, and without the name that says what they are.
  EXPECT_EQ(run_plumbline("check --fragment " + file("rows", kHang)).code, 3);
}

TEST_F(Check, StructureOfASchedule) {
  const Outcome outcome = run_plumbline("check " + file("twice.csv", "0F0,0F0,0B0\n1F0,1B0\n"));
  EXPECT_EQ(outcome.code, 1) << outcome.err << outcome.out;
  EXPECT_NE(outcome.out.find("0F0"), std::string::npos);
}

TEST_F(Check, ProgramText) {
  const Outcome lowered = run_plumbline("lower --pp 2 --microbatches 4");
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  EXPECT_EQ(run_plumbline("check " + file("program.txt", lowered.out)).code, 0);
}

TEST_F(Check, MemoryLimit) {
  EXPECT_EQ(run_plumbline("check --pp 4 -m 8 --memory-limit 1KiB").code, 5);
  EXPECT_EQ(run_plumbline("check --pp 4 -m 8 --memory-limit 64GiB").code, 0);
  // Of graphs as well, which are examined by simulation.
  EXPECT_EQ(run_plumbline("check --pp 4 -m 8 --cuda-graphs --memory-limit 1KiB").code, 5);
  EXPECT_EQ(run_plumbline("check --pp 4 -m 8 --cuda-graphs --memory-limit 64GiB").code, 0);
  EXPECT_EQ(run_plumbline("check --pp 4 -m 8 --memory-limit much").code, 2);
}

// Rank 1 leaves all W to the end; rank 0 holds two activations at most, each until its B.
constexpr std::string_view kLateWeightGrads =
    "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1I0,1F1,1I1,1F2,1I2,1F3,1I3,1W0,1W1,1W2,1W3\n";

TEST_F(Check, WhatARankMayHold) {
  const std::string rows = file("late.csv", kLateWeightGrads);
  EXPECT_EQ(run_plumbline("check " + rows).code, 0) << "no bound, no finding";
  for (const char* wide :
       {"--weight-queue-cap 4", "--activation-cap 4", "--activation-cap-until-input-grad 2"})
    EXPECT_EQ(run_plumbline("check " + rows + " " + wide).code, 0) << wide;
  const auto broken = [&](const std::string& cap, int rank, const std::string& action,
                          const std::string& why) {
    const Outcome text = run_plumbline("check " + rows + " " + cap);
    EXPECT_EQ(text.code, 5) << cap << text.err;
    EXPECT_NE(text.out.find("rank " + std::to_string(rank) + ": " + action), std::string::npos) << text.out;
    const Outcome json = run_plumbline("check --json " + rows + " " + cap);
    EXPECT_EQ(json.code, 5) << cap << json.err;
    const auto verdict = parse_verdict_json(json.out, "json");
    ASSERT_TRUE(verdict.has_value()) << verdict.error().text();
    ASSERT_EQ(verdict->findings.size(), 1u) << json.out;
    EXPECT_EQ(verdict->findings[0].kind, FindingKind::kMemoryLimit);
    EXPECT_EQ(verdict->findings[0].why, why);
    EXPECT_EQ(verdict->findings[0].operations.at(0).rank, rank);
    EXPECT_EQ(verdict->findings[0].operations.at(0).text, action);
    for (const ModeVerdict& mode : verdict->modes) EXPECT_TRUE(mode.completes) << "it still runs";
  };
  broken(
      "--weight-queue-cap 2", 1, "1I2",
      "weight-queue: with 1I2 rank 1 holds 3 weight gradients whose W is still to come; the bound is 2, its "
      "peak 4");
  broken(
      "--activation-cap 3", 1, "1F3",
      "activations: with 1F3 rank 1 holds 4 activations, each until its W or B; the bound is 3, its peak 4");
  broken(
      "--activation-cap-until-input-grad 1", 0, "0F1",
      "activations: with 0F1 rank 0 holds 2 activations, each until its I or B; the bound is 1, its peak 2");
}

// A bound holds for every number of microbatches that a run's steps have; the main one's is kept here.
TEST_F(Check, AllStepsOfABatchScheduleAreHeldToTheCap) {
  const std::string run =
      "check --pp 2 --schedule gpipe --step-batch-size-schedule '0:4 8:8 24:4' --train-iters 8 ";
  EXPECT_EQ(run_plumbline(run + "--activation-cap 8").code, 0);
  const Outcome outcome = run_plumbline(run + "--activation-cap 6 --json");
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_NE(outcome.out.find("in steps of 8 microbatches: activations: with 0F6 rank 0 holds 7"),
            std::string::npos)
      << outcome.out;
  EXPECT_EQ(outcome.out.find("in steps of 4 microbatches"), std::string::npos) << outcome.out;
}

TEST_F(Check, GeneratedOrdersAreHeldToTheirCap) {
  EXPECT_EQ(run_plumbline("check --generator zb-auto --pp 4 -m 8 --activation-cap 4").code, 0);
  for (const char* bare : {"--schedule 1f1b", "--generator 1f1b", "--schedule 1f1b --pipeline-only"}) {
    const Outcome outcome = run_plumbline(std::string("check --pp 4 -m 8 --activation-cap 3 ") + bare);
    EXPECT_EQ(outcome.code, 5) << bare << outcome.err;
    EXPECT_NE(outcome.out.find("its peak 4"), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(run_plumbline("sim --pp 4 -m 8 --activation-cap 3").code, 0)
      << "a simulation does not judge caps";
}

TEST_F(Check, CapsNeedASchedule) {
  const Outcome lowered = run_plumbline("lower --pp 2 --microbatches 4");
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  const std::string program = file("program.txt", lowered.out);
  for (const char* cap :
       {"--activation-cap 2", "--weight-queue-cap 2", "--activation-cap-until-input-grad 2"}) {
    const Outcome outcome = run_plumbline("check " + program + " " + cap);
    EXPECT_EQ(outcome.code, 2) << cap << outcome.out;
    EXPECT_NE(outcome.err.find("holds a Program"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run_plumbline("check --pp 2 -m 4 --weight-queue-cap -1").code, 2);
}

// What a file lists says how many ranks, chunks and microbatches there are, to every command; what contradicts it is
// refused instead of passed over.
TEST_F(Check, AListedScheduleGivesItsShape) {
  const std::string rows = file("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  for (const char* command : {"check ", "lower --pipeline-only ", "sim ", "config "}) {
    const Outcome outcome = run_plumbline(command + rows);
    EXPECT_EQ(outcome.code, 0) << command << outcome.err;
  }
  for (const auto& [flag, has] : {std::pair{"--pp 4", "has 2 ranks"},
                                  {"--vp 2", "has 1 stages a rank"},
                                  {"-m 4", "has 2 microbatches"},
                                  {"--global-batch-size 4", "means 4 microbatches"}}) {
    for (const char* command : {"check ", "lower "}) {
      const Outcome outcome = run_plumbline(std::string(command) + rows + " " + flag);
      EXPECT_EQ(outcome.code, 2) << command << flag;
      EXPECT_NE(outcome.err.find(has), std::string::npos) << outcome.err;
    }
  }
  EXPECT_EQ(run_plumbline("check " + rows + " --pp 2 -m 2 --vp 1 --global-batch-size 2").code, 0);
}

TEST_F(Check, UsageErrors) {
  EXPECT_EQ(run_plumbline("check /nonexistent.toml").code, 2);
  EXPECT_EQ(run_plumbline("check --pipeline 3").code, 2);
  EXPECT_EQ(run_plumbline("check " + file("bad.csv", "0F0,nonsense\n")).code, 2);
}

TEST_F(Check, IsQuick) {
  run_plumbline("check --pp 8 --microbatches 64");
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(run_plumbline("check --pp 8 --microbatches 64").code, 0);
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
  }
  // The shell that starts it is counted too, and sanitizers; the promise is 20 ms on a plain build.
  EXPECT_LT(best, std::chrono::milliseconds(500));
}

TEST_F(Check, SimulateRecordShowReport) {
  const std::string run = path("run.plmb");
  const Outcome sim = run_plumbline("sim --pp 4 -m 8 --steps 2 -o " + run);
  ASSERT_EQ(sim.code, 0) << sim.err;
  for (const char* word : {"makespan", "stage time", "digest", "run.plmb"}) {
    EXPECT_NE(sim.out.find(word), std::string::npos) << word;
  }
  const Outcome again = run_plumbline("sim --pp 4 -m 8 --steps 2 --json");
  const Outcome dump = run_plumbline("record dump --json --events " + run);
  ASSERT_EQ(dump.code, 0) << dump.err;
  const auto record = nlohmann::json::parse(dump.out);
  EXPECT_EQ(record.at("steps").size(), 2u);
  EXPECT_EQ(record.at("events").size(), record.at("event_count").get<std::size_t>());
  EXPECT_EQ(record.at("digest"), nlohmann::json::parse(again.out).at("digest"));
  EXPECT_NE(run_plumbline("record dump " + run).out.find("4 ranks"), std::string::npos);
  EXPECT_NE(run_plumbline("show " + run).out.find("rank 3"), std::string::npos);
  EXPECT_NE(run_plumbline("show --pp 4 -m 8").out.find("rank 3"), std::string::npos);
  const std::string page = path("report.html"), picture = path("t.svg"), graph = path("g.dot");
  const Outcome report =
      run_plumbline("report " + run + " -o " + page + " --svg " + picture + " --dot " + graph);
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_TRUE(read_file(page)->find("<html") != std::string::npos);
  EXPECT_TRUE(read_file(picture)->find("<svg") != std::string::npos);
  EXPECT_TRUE(read_file(graph)->find("digraph") != std::string::npos);
  EXPECT_EQ(run_plumbline("report " + run).code, 2);
  EXPECT_EQ(run_plumbline("record dump " + graph).code, 2);
}

TEST_F(Check, SimulatedHangLeavesARecord) {
  const std::string hang = file("hang.csv", kHang), run = path("hang.plmb"), graph = path("hang.dot");
  EXPECT_EQ(run_plumbline("sim --fragment " + hang + " -o " + run).code, 3);
  EXPECT_EQ(run_plumbline("report " + run + " --dot " + graph).code, 0);
  EXPECT_NE(read_file(graph)->find("SEND_F1"), std::string::npos);
  EXPECT_EQ(run_plumbline("sim --fragment --send always-eager " + hang).code, 0);
}

}  // namespace
}  // namespace plumbline
