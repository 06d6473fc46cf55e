// Runs of one process a rank: what each way to fail says, its exit code, and that no process is left behind.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>

#include "tests/cli/background.h"

namespace plumbline {
namespace {

const std::string kSmall =
    "--pp 2 --num-layers 4 --hidden-size 16 --num-attention-heads 2 --microbatches 4 -q ";

TEST(GlooRun, NumbersAreTheSimulators) {
  NEEDS_ENGINE;
  const std::string sim = temporary("sim.plmb"), real = temporary("gloo.plmb");
  const std::string run = kSmall + "--train-iters 3 --bf16 -o ";
  const Outcome simulated = run_engine("run " + run + sim);
  ASSERT_EQ(0, simulated.code) << simulated.err;
  const Outcome measured = run_engine("run " + run + real + " --backend gloo --nproc 2");
  ASSERT_EQ(0, measured.code) << measured.err;
  const RunRecord a = record_at(sim), b = record_at(real);
  EXPECT_EQ("gloo", b.backend);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].params_digest, b.steps[i].params_digest);
    EXPECT_EQ(a.steps[i].optimizer_digest, b.steps[i].optimizer_digest);
  }
  EXPECT_EQ(a.events.size(), b.events.size());
  EXPECT_FALSE(read_file(real + ".ranks/rank-00000.plmb")) << "the parts are removed when they are merged";
}

TEST(GlooRun, ADeadlockIsTheSimulatorsCircle) {
  NEEDS_ENGINE;
  const std::string csv = temporary("dead.csv"), sim = temporary("sim.plmb"), real = temporary("gloo.plmb");
  ASSERT_TRUE(write_file(csv,
                         "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                         "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"));
  const std::string run = "--pp 2 --num-layers 4 --schedule csv --schedule-csv " + csv +
                          " --microbatches 2 --comm-map one --train-iters 1 -q -o ";
  ASSERT_EQ(3, run_engine("run " + run + sim).code);
  const Outcome measured = run_engine("run " + run + real + " --backend gloo --nproc 2 --timeout 1");
  EXPECT_EQ(3, measured.code) << measured.err;
  EXPECT_NE(std::string::npos, measured.err.find("no progress for 1 s")) << measured.err;
  EXPECT_EQ(4u, circle_of(sim).size());
  EXPECT_EQ(circle_of(sim), circle_of(real));
  EXPECT_TRUE(read_file(real + ".ranks/flight-recorder-00001.json"));
}

TEST(GlooRun, AKilledRankIsNamed) {
  NEEDS_ENGINE;
  const std::string out = temporary("run.plmb");
  Background run(kSmall + "--train-iters 100000 --backend gloo --nproc 2 -o " + out);
  const std::vector<pid_t> ranks = run.ranks_at_work(out, 2);
  ASSERT_EQ(2u, ranks.size());
  ::kill(ranks[1], SIGKILL);
  const Outcome outcome = run.wait();
  EXPECT_EQ(128 + SIGKILL, outcome.code);
  EXPECT_NE(std::string::npos, outcome.err.find("rank 1 was ended by signal 9")) << outcome.err;
  expect_gone(ranks);
  EXPECT_FALSE(record_at(out).steps.empty()) << "what was recorded until then is kept";
}

TEST(GlooRun, ADelayedRankIsNamed) {
  NEEDS_ENGINE;
  const std::string out = temporary("run.plmb");
  Background run(kSmall + "--train-iters 100000 --backend gloo --nproc 2 --timeout 1 -o " + out);
  const std::vector<pid_t> ranks = run.ranks_at_work(out, 2);
  ASSERT_EQ(2u, ranks.size());
  ::kill(ranks[1], SIGSTOP);
  const Outcome outcome = run.wait();
  EXPECT_EQ(124, outcome.code) << outcome.err;
  EXPECT_NE(std::string::npos, outcome.err.find("rank 1 did not answer")) << outcome.err;
  EXPECT_NE(std::string::npos, outcome.err.find("not deadlocked: rank 1 is late")) << outcome.err;
  expect_gone(ranks);
}

TEST(GlooRun, TheLaunchersEndIsTheRanksEnd) {
  NEEDS_ENGINE;
  const std::string out = temporary("run.plmb");
  Background run(kSmall + "--train-iters 100000 --backend gloo --nproc 2 -o " + out);
  const std::vector<pid_t> ranks = run.ranks_at_work(out, 2);
  ASSERT_EQ(2u, ranks.size());
  ::kill(run.pid(), SIGKILL);
  EXPECT_EQ(128 + SIGKILL, run.wait().code);
  for (int i = 0; i < 100 && (::kill(ranks[0], 0) == 0 || ::kill(ranks[1], 0) == 0); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  expect_gone(ranks);
}

TEST(GlooRun, WrongWorldSizesAndHalfSetEnvironments) {
  NEEDS_ENGINE;
  const Outcome nproc = run_engine("run " + kSmall + "--backend gloo --nproc 3");
  EXPECT_EQ(2, nproc.code);
  EXPECT_NE(std::string::npos, nproc.err.find("--nproc is 3, and the configuration has 2 ranks"))
      << nproc.err;
  const Outcome launched =
      run_engine("run " + kSmall + "--backend gloo", "RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost");
  EXPECT_EQ(2, launched.code);
  EXPECT_NE(std::string::npos, launched.err.find("torchrun says 4 ranks")) << launched.err;
  const Outcome half = run_engine("run " + kSmall + "--backend gloo", "RANK=0");
  EXPECT_EQ(2, half.code);
  EXPECT_NE(std::string::npos, half.err.find("RANK is set, WORLD_SIZE is not")) << half.err;
}

TEST(GlooRun, APortInUse) {
  NEEDS_ENGINE;
  const TakenPort taken;
  const Outcome outcome = run_engine("run " + kSmall + "--backend gloo --nproc 2 -o " +
                                     temporary("run.plmb") + " --master-port " + std::to_string(taken.port));
  EXPECT_EQ(2, outcome.code);
  EXPECT_NE(std::string::npos, outcome.err.find("the port is in use")) << outcome.err;
}

// Whoever looks for a rank's record must not find that of a run that was given up before (it made a watcher believe
// that the ranks were at work).
TEST(GlooRun, AnEarlierRunsRemainsAreCleared) {
  NEEDS_ENGINE;
  const TakenPort taken;
  const std::string out = temporary("run.plmb");
  std::filesystem::create_directories(out + ".ranks");
  for (const char* name : {"rank-00000.plmb", "rank-00001.position.json", "flight-recorder-00001.json"})
    ASSERT_TRUE(write_file(out + ".ranks/" + name, "an earlier run's"));
  const Outcome outcome = run_engine("run " + kSmall + "--backend gloo --nproc 2 -o " + out +
                                     " --master-port " + std::to_string(taken.port));
  EXPECT_EQ(2, outcome.code);
  EXPECT_FALSE(std::filesystem::exists(out + ".ranks"));
}

TEST(GlooRun, AnotherProgramOnOneRankAndARankThatNeverComes) {
  NEEDS_ENGINE;
  TakenPort taken;
  taken.free();  // free a moment ago
  const std::string port = " --master-port " + std::to_string(taken.port) + " --world-size 2 --backend gloo";
  const std::string out = temporary("run.plmb");
  Background other(kSmall + "--microbatches 8 --rank 1" + port + " -o " + out);
  const Outcome first = run_engine("run " + kSmall + "--rank 0" + port + " -o " + out);
  EXPECT_EQ(4, first.code) << first.err;
  EXPECT_NE(std::string::npos, first.err.find("do not run the same Program: rank 1 has")) << first.err;
  EXPECT_EQ(4, other.wait().code);
  const Outcome alone = run_engine("run " + kSmall + "--rank 0 --join-timeout 2" + port + " -o " + out);
  EXPECT_EQ(124, alone.code);
  EXPECT_NE(std::string::npos, alone.err.find("rank 1 did not come")) << alone.err;
}

// Started one by one, ranks have a supervisor each: the one of rank 0 speaks, and all leave with its code. (Every one
// of them used to explain a deadlock with the words of its own rank alone, and left with 124.)
TEST(GlooRun, RanksStartedOneByOneLeaveWithOneCode) {
  NEEDS_ENGINE;
  TakenPort taken;
  taken.free();  // free a moment ago
  const std::string csv = temporary("dead.csv"), out = temporary("run.plmb");
  ASSERT_TRUE(write_file(csv,
                         "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                         "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"));
  const std::string run = "--pp 2 --num-layers 4 --schedule csv --schedule-csv " + csv +
                          " --microbatches 2 --comm-map one --train-iters 1 -q --timeout 1 --backend gloo "
                          "--world-size 2 --master-port " +
                          std::to_string(taken.port) + " -o " + out;
  Background other(run + " --rank 1");
  const Outcome first = run_engine("run " + run + " --rank 0");
  EXPECT_EQ(3, first.code) << first.err;
  EXPECT_NE(std::string::npos, first.err.find("deadlock: 4 operations on 2 ranks")) << first.err;
  const Outcome second = other.wait();
  EXPECT_EQ(3, second.code);
  EXPECT_EQ("", second.err);
}

// While the supervisor of rank 0 waits for a rank that does not answer, those of the others leave theirs alone: the
// first one killed broke the connections of the next, which then ended with an error of its own and passed for the
// culprit.
TEST(GlooRun, RanksStartedOneByOneWaitForALateOneTogether) {
  NEEDS_ENGINE;
  TakenPort taken;
  taken.free();  // free a moment ago
  const std::string out = temporary("run.plmb");
  std::vector<std::unique_ptr<Background>> runs;
  for (int rank = 0; rank < 3; ++rank)
    runs.push_back(std::make_unique<Background>(
        "--pp 3 --num-layers 3 --hidden-size 16 --num-attention-heads 2 --microbatches 4 -q --timeout 1 "
        "--train-iters 100000 --backend gloo --world-size 3 --master-port " +
            std::to_string(taken.port) + " -o " + out + " --rank " + std::to_string(rank),
        std::to_string(rank)));
  ASSERT_EQ(1u, runs[0]->ranks_at_work(out, 1).size());
  const std::vector<pid_t> late = children_of(runs[2]->pid());
  ASSERT_EQ(1u, late.size());
  ::kill(late.front(), SIGSTOP);
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = runs[static_cast<std::size_t>(rank)]->wait();
    EXPECT_EQ(124, outcome.code) << outcome.err;
    EXPECT_EQ(std::string::npos, outcome.err.find("broke off")) << outcome.err;
    EXPECT_EQ(rank == 0, outcome.err.find("not deadlocked: rank 2 is late") != std::string::npos)
        << outcome.err;
  }
  expect_gone(late);
}

// A port that takes connections and never answers is not a store; ranks waited there without end, deaf to SIGTERM.
TEST(GlooRun, WhatAnswersAtThePortMustBeAStore) {
  NEEDS_ENGINE;
  const TakenPort taken;
  const Outcome outcome =
      run_engine("run " + kSmall + "--backend gloo --world-size 2 --rank 1 --join-timeout 1 -o " +
                 temporary("run.plmb") + " --master-port " + std::to_string(taken.port));
  EXPECT_EQ(4, outcome.code);
  EXPECT_NE(std::string::npos, outcome.err.find("is not a store")) << outcome.err;
}

// Each process that a launcher has started would start all ranks.
TEST(GlooRun, NprocUnderALauncherIsRefused) {
  NEEDS_ENGINE;
  const Outcome outcome = run_engine("run " + kSmall + "--backend gloo --nproc 2 -o " + temporary("run.plmb"),
                                     "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2");
  EXPECT_EQ(2, outcome.code);
  EXPECT_NE(std::string::npos, outcome.err.find("Open MPI has started 2 of these processes")) << outcome.err;
}

// Refused by all ranks, and told by one of them.
TEST(GlooRun, CudaGraphsAreRefusedOnce) {
  NEEDS_ENGINE;
  const Outcome outcome =
      run_engine("run " + kSmall + "--backend gloo --nproc 2 --cuda-graphs -o " + temporary("run.plmb"));
  EXPECT_EQ(2, outcome.code);
  const std::string words = "there are no CUDA graphs over Gloo";
  const std::size_t first = outcome.err.find(words);
  ASSERT_NE(std::string::npos, first) << outcome.err;
  EXPECT_EQ(std::string::npos, outcome.err.find(words, first + 1)) << outcome.err;
}

// A forward-only schedule is one evaluation, and nothing else.
TEST(GlooRun, ForwardOnlyEvaluatesAsTheSimulatorDoes) {
  NEEDS_ENGINE;
  const std::string sim = temporary("sim.plmb"), real = temporary("gloo.plmb");
  const std::string run = kSmall + "--schedule forward-only --eval-iters 2 -o ";
  const Outcome simulated = run_engine("run " + run + sim);
  ASSERT_EQ(0, simulated.code) << simulated.err;
  EXPECT_NE(std::string::npos, simulated.out.find("nothing is trained")) << simulated.out;
  const Outcome measured = run_engine("run " + run + real + " --backend gloo --nproc 2");
  ASSERT_EQ(0, measured.code) << measured.err;
  const RunRecord a = record_at(sim), b = record_at(real);
  ASSERT_EQ(2u, a.steps.size());
  ASSERT_EQ(2u, b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_TRUE(b.steps[i].evaluation);
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
  }
  EXPECT_EQ(2, b.ranks_a_machine);
  EXPECT_GE(b.cores, 1);
  EXPECT_GT(b.events.front().cpu, 0);
  const Outcome nothing = run_engine("run " + kSmall + "--schedule forward-only --eval-iters 0");
  EXPECT_EQ(2, nothing.code);
  EXPECT_NE(std::string::npos, nothing.err.find("--eval-iters")) << nothing.err;
}

}  // namespace
}  // namespace plumbline
