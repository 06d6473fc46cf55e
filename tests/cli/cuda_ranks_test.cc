// `run --backend cuda` with a process a rank, on doubles of CUDA and NCCL that a server plays for all of them: numbers
// are the simulator's, each way to fail says what it was, and no process is left behind.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/background.h"

namespace plumbline {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kSmall =
    "--pp 2 --num-layers 4 --hidden-size 16 --num-attention-heads 2 --microbatches 4 -q ";
constexpr const char* kLibraries[] = {"CUDART_LIBRARY", "CUDA_DRIVER_LIBRARY", "NCCL_LIBRARY",
                                      "NVTX_LIBRARY"};

std::string on_doubles() {
  std::string environment = "OMP_NUM_THREADS=1";
  for (const char* name : kLibraries) environment += std::string(" ") + name + "=" + PLUMBLINE_DOUBLES;
  return environment;
}

// The engine behind a server that plays so many devices.
Outcome run_on(int devices, const std::string& arguments, const std::string& environment = "") {
  return run_program(PLUMBLINE_DOUBLE_SERVER_EXECUTABLE,
                     fmt::format("--devices {} -- '{}' {}", devices, PLUMBLINE_ENGINE_EXECUTABLE, arguments),
                     on_doubles() + " " + environment);
}

class CudaRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(PLUMBLINE_ENGINE_EXECUTABLE).empty()) GTEST_SKIP() << "plumbline-engine is not built";
    if (std::string(PLUMBLINE_DOUBLE_SERVER_EXECUTABLE).empty())
      GTEST_SKIP() << "the server of the doubles is not built";
  }
  // Two ranks that train for long, behind a server.
  static Background in_background(const std::string& out, const std::string& more = "") {
    for (const char* name : kLibraries) ::setenv(name, PLUMBLINE_DOUBLES, 1);
    Background run(kSmall + "--train-iters 100000 --backend cuda --nproc 2 -o " + out + " " + more, "",
                   {PLUMBLINE_DOUBLE_SERVER_EXECUTABLE, "--devices", "2", "--verdict", out + ".found", "--"});
    for (const char* name : kLibraries) ::unsetenv(name);
    return run;
  }
};

void expect_equal_runs(int ranks, const std::string& run) {
  SCOPED_TRACE(run);
  const std::string sim = temporary("sim.plmb"), real = temporary("cuda.plmb");
  const Outcome simulated = run_engine("run " + run + " -q -o " + sim);
  ASSERT_EQ(0, simulated.code) << simulated.err;
  const Outcome measured =
      run_on(ranks, fmt::format("run {} --backend cuda --nproc {} -o {}", run, ranks, real));
  ASSERT_EQ(0, measured.code) << measured.err << measured.out;
  EXPECT_EQ("", measured.err) << "what the doubles found comes out here";
  EXPECT_THAT(measured.out, HasSubstr("backend cuda-nccl, a process a rank"));
  const RunRecord a = record_at(sim), b = record_at(real);
  EXPECT_EQ("cuda-nccl", b.backend);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  ASSERT_FALSE(a.steps.empty());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    StepRow row = b.steps[i];
    EXPECT_LE(0, row.begin) << "from the run's start";
    row.begin = a.steps[i].begin;
    row.end = a.steps[i].end;
    EXPECT_EQ(a.steps[i], row) << "step " << i;
  }
  EXPECT_EQ(a.events.size(), b.events.size());
  EXPECT_EQ(a.memory.size(), b.memory.size());
  EXPECT_FALSE(std::filesystem::exists(real + ".ranks")) << "the parts are removed when they are merged";
}

TEST_F(CudaRanks, NumbersAreTheSimulators) {
  const std::string model = "--hidden-size 16 --num-attention-heads 2 -m 4 --train-iters 3 --eval-iters 1 ";
  expect_equal_runs(2, model + "--pp 2 --num-layers 4");
  expect_equal_runs(4, model + "--pp 4 --num-layers 4");
  expect_equal_runs(4, model + "--pp 2 --dp 2 --num-layers 4 --bf16");
  expect_equal_runs(2, model + "--pp 2 --num-layers 8 --schedule interleaved --vp 2 --p2p separate");
  expect_equal_runs(4, model +
                           "--pp 2 --dp 2 --num-layers 4 --fp16 --initial-loss-scale 1024 "
                           "--inject-overflow rank=1:step=2");
}

// What stages compute on a device is LibTorch's arithmetic; the doubles' devices are the CPU.
TEST_F(CudaRanks, StagesOnTheDevice) {
  const std::string sim = temporary("sim.plmb"), real = temporary("cuda.plmb");
  const std::string run = "run " + kSmall + "--train-iters 2 --bf16 -o ";
  const Outcome simulated = run_engine(run + sim + " --arithmetic libtorch");
  ASSERT_EQ(0, simulated.code) << simulated.err;
  const Outcome measured = run_on(2, run + real + " --backend cuda --nproc 2 --compute device");
  ASSERT_EQ(0, measured.code) << measured.err;
  EXPECT_EQ(record_at(sim).steps.back().params_digest, record_at(real).steps.back().params_digest);
}

std::string model_line(const Outcome& outcome) {
  const std::size_t at = outcome.out.find("model  ");
  return at == std::string::npos ? outcome.err : outcome.out.substr(at, outcome.out.find('\n', at) - at);
}

// Saves beside training meet over a channel of their own.
TEST_F(CudaRanks, AsynchronousSavesAndResuming) {
  const std::string folder = temporary("checkpoints");
  std::filesystem::remove_all(folder);
  const std::string run =
      "run " + kSmall + "--dp 2 --eval-iters 0 --train-iters 6 -o " + temporary("run.plmb");
  const Outcome whole = run_engine(run);
  ASSERT_EQ(0, whole.code) << whole.err;
  const Outcome saved = run_on(
      4, run + " --backend cuda --nproc 4 --async-save --save-interval 2 --exit-interval 4 --save " + folder);
  ASSERT_EQ(0, saved.code) << saved.err;
  EXPECT_TRUE(std::filesystem::exists(folder));
  const Outcome resumed = run_on(4, run + " --backend cuda --nproc 4 --load " + folder);
  ASSERT_EQ(0, resumed.code) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("going on from iteration 4"));
  EXPECT_THAT(model_line(whole), HasSubstr("after iteration 6"));
  EXPECT_EQ(model_line(whole), model_line(resumed));
  std::filesystem::remove_all(folder);
}

TEST_F(CudaRanks, ARecordIsReplayed) {
  const std::string sim = temporary("sim.plmb");
  ASSERT_EQ(0, run_engine("run " + kSmall + "--train-iters 2 -o " + sim).code);
  const Outcome replay =
      run_on(2, "replay " + sim + " --backend cuda --nproc 2 -q -o " + temporary("again.plmb"));
  EXPECT_EQ(0, replay.code) << replay.out << replay.err;
}

TEST_F(CudaRanks, ADeadlockIsTheSimulatorsCircle) {
  const std::string csv = temporary("dead.csv"), sim = temporary("sim.plmb"), real = temporary("cuda.plmb");
  ASSERT_TRUE(write_file(csv,
                         "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                         "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"));
  const std::string run = "run --pp 2 --num-layers 4 --schedule csv --schedule-csv " + csv +
                          " --microbatches 2 --comm-map one --train-iters 1 -q -o ";
  ASSERT_EQ(3, run_engine(run + sim).code);
  const Outcome measured = run_on(2, run + real + " --backend cuda --nproc 2 --timeout 1");
  EXPECT_EQ(3, measured.code) << measured.err;
  EXPECT_THAT(measured.err, HasSubstr("no progress for 1 s"));
  EXPECT_THAT(measured.err, HasSubstr("deadlock: 4 operations on 2 ranks"));
  EXPECT_EQ(4u, circle_of(sim).size());
  EXPECT_EQ(circle_of(sim), circle_of(real));
  EXPECT_THAT(read_file(real + ".ranks/flight-recorder-00001.json").value_or(""),
              HasSubstr("\"comm_lib_version\":\"nccl\""));
}

TEST_F(CudaRanks, AKilledRankIsNamed) {
  const std::string out = temporary("run.plmb");
  Background run = in_background(out);
  const std::vector<pid_t> ranks = run.ranks_at_work(out, 2);
  ASSERT_EQ(2u, ranks.size());
  ::kill(ranks[1], SIGKILL);
  const Outcome outcome = run.wait();
  EXPECT_EQ(128 + SIGKILL, outcome.code);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 was ended by signal 9"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("nccl"))) << "the other rank's calls fail too, and it keeps silent";
  expect_gone(ranks);
  EXPECT_FALSE(record_at(out).steps.empty()) << "what was recorded until then is kept";
}

TEST_F(CudaRanks, ADelayedRankIsNamed) {
  const std::string out = temporary("run.plmb");
  Background run = in_background(out, "--timeout 1");
  const std::vector<pid_t> ranks = run.ranks_at_work(out, 2);
  ASSERT_EQ(2u, ranks.size());
  ::kill(ranks[1], SIGSTOP);
  const Outcome outcome = run.wait();
  EXPECT_EQ(124, outcome.code) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 did not answer"));
  EXPECT_THAT(outcome.err, HasSubstr("not deadlocked: rank 1 is late"));
  expect_gone(ranks);
}

TEST_F(CudaRanks, SigtermToTheLauncherAndToARankEndsTheRun) {
  for (const bool to_rank : {false, true}) {
    const std::string out = temporary("run.plmb");
    Background run = in_background(out);
    const std::vector<pid_t> ranks = run.ranks_at_work(out, 2);
    ASSERT_EQ(2u, ranks.size());
    ::kill(to_rank ? ranks[0] : run.engine(), SIGTERM);
    const Outcome outcome = run.wait();
    EXPECT_EQ(128 + SIGTERM, outcome.code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(to_rank ? "rank 0 got SIGTERM" : "the launcher got SIGTERM"));
    expect_gone(ranks);
  }
}

TEST_F(CudaRanks, TheLaunchersEndIsTheRanksEnd) {
  const std::string out = temporary("run.plmb");
  Background run = in_background(out);
  const std::vector<pid_t> ranks = run.ranks_at_work(out, 2);
  ASSERT_EQ(2u, ranks.size());
  ::kill(run.engine(), SIGKILL);
  EXPECT_EQ(128 + SIGKILL, run.wait().code);
  for (int i = 0; i < 100 && (::kill(ranks[0], 0) == 0 || ::kill(ranks[1], 0) == 0); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  expect_gone(ranks);
}

TEST_F(CudaRanks, RanksStartedOneByOneLeaveWithOneCode) {
  TakenPort taken;
  taken.free();  // free a moment ago
  const std::string out = temporary("run.plmb");
  const std::string run = fmt::format(
      "'{}' run {} --train-iters 2 --eval-iters 0 --backend cuda --world-size 2 --master-port {} -o {} "
      "--rank",
      PLUMBLINE_ENGINE_EXECUTABLE, kSmall, taken.port, out);
  const Outcome outcome = run_program(
      PLUMBLINE_DOUBLE_SERVER_EXECUTABLE,
      fmt::format("--devices 2 -- sh -c \"{0} 1 & {0} 0; first=\\$?; wait \\$!; echo codes \\$first \\$?\"",
                  run),
      on_doubles());
  EXPECT_THAT(outcome.out, HasSubstr("codes 0 0")) << outcome.err;
  EXPECT_EQ(2u, record_at(out).steps.size()) << "put together from both";
}

// PMI says nothing of places on a machine: both ranks would take device 0, which NCCL does not have.
TEST_F(CudaRanks, WithoutPlacesRanksTakeDevicesInTheirOrder) {
  TakenPort taken;
  taken.free();  // free a moment ago
  const std::string out = temporary("run.plmb");
  const std::string run = fmt::format("'{}' run {} --train-iters 2 --eval-iters 0 --backend cuda -o {}",
                                      PLUMBLINE_ENGINE_EXECUTABLE, kSmall, out);
  const Outcome outcome =
      run_program(PLUMBLINE_DOUBLE_SERVER_EXECUTABLE,
                  fmt::format("--devices 2 -- sh -c \"PMI_RANK=1 {0} & PMI_RANK=0 {0}; first=\\$?; wait "
                              "\\$!; echo codes \\$first \\$?\"",
                              run),
                  on_doubles() + fmt::format(" PMI_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}", taken.port));
  EXPECT_THAT(outcome.out, HasSubstr("codes 0 0")) << outcome.err;
  EXPECT_EQ(2u, record_at(out).steps.size()) << "put together from both";
}

TEST_F(CudaRanks, WhatCannotBeIsRefused) {
  const std::string run =
      "run " + kSmall + "--train-iters 1 --backend cuda -o " + temporary("run.plmb") + " ";
  const auto refused = [&](int code, int devices, const std::string& more, const char* words,
                           const std::string& environment = "") {
    const Outcome outcome = run_on(devices, run + more, environment);
    EXPECT_EQ(code, outcome.code) << more << environment;
    EXPECT_THAT(outcome.err, HasSubstr(words));
    EXPECT_EQ(outcome.err.find("error:"), outcome.err.rfind("error:")) << "said once: " << outcome.err;
  };
  refused(2, 2, "--nproc 3", "--nproc is 3, and the configuration has 2 ranks");
  refused(2, 2, "", "torchrun says 4 ranks", "RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost");
  refused(2, 2, "", "RANK is set, WORLD_SIZE is not", "RANK=0");
  refused(2, 2, "--nproc 2", "Open MPI has started 2 of these processes",
          "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2");
  refused(2, 2, "--nproc 2 --cuda-level loopback", "--cuda-level loopback moves messages inside one process");
  refused(2, 2, "--nproc 2 --cuda-level self-send", "--cuda-level self-send moves");
  refused(2, 1, "--nproc 2", "there are 1 for 2 ranks");
  refused(75, 0, "--nproc 2", "finds no device");
  refused(75, 2, "--nproc 2", "/nowhere/libnccl.so", "NCCL_LIBRARY=/nowhere/libnccl.so");
  refused(124, 2, "--rank 0 --world-size 2 --master-port 0 --join-timeout 1", "rank 1 did not come");
}

// A process that a launcher has started alone has all ranks, as without a launcher.
TEST_F(CudaRanks, ALauncherOfOneProcessIsNone) {
  const std::string out = temporary("run.plmb");
  const Outcome outcome = run_on(2, "run " + kSmall + "--train-iters 1 --backend cuda -o " + out,
                                 "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1");
  EXPECT_EQ(0, outcome.code) << outcome.err;
  EXPECT_EQ("cuda-nccl", record_at(out).backend);
}

}  // namespace
}  // namespace plumbline
