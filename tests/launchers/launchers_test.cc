// `plumbline run --backend gloo` under the real torchrun, mpirun, mpiexec and srun, by the lines that `plumbline
// launch` prints: what each way to end says, the exit code that the launcher makes of it, and that no process is left.
#include <csignal>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/launchers/launcher.h"
#include "tests/launchers/processes.h"

namespace plumbline::test {
namespace {

const std::string kFour =
    "--pp 4 --num-layers 4 --hidden-size 16 --num-attention-heads 2 --microbatches 4 -q ";

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

// A port that was free a moment ago: two of these tests may run at a time, and Open MPI and Hydra name none.
std::string some_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  EXPECT_EQ(0, ::bind(probe, reinterpret_cast<sockaddr*>(&address), size));
  EXPECT_EQ(0, ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size));
  ::close(probe);
  return std::to_string(ntohs(address.sin_port));
}

class Launchers : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    here_ = &launcher_here(GetParam());
    if (!here_->missing().empty()) GTEST_SKIP() << "SKIPPED, a launcher is missing: " << here_->missing();
    ::setenv("MASTER_PORT", some_port().c_str(), 1);
    ::setenv("SLURM_OVERCOMMIT", "1", 1);  // four tasks on fewer cores, as --overcommit
    record_ = temporary(std::string(GetParam()) + ".plmb");
    std::filesystem::remove_all(record_);
    std::filesystem::remove_all(record_ + ".ranks");
  }

  std::string command(const std::string& arguments) const {
    return here_->command(kFour + arguments + " -o " + record_);
  }
  // Its processes, once four ranks have taken a step.
  std::vector<RunProcess> at_work(const BackgroundCommand& run) const {
    for (int i = 0; i < 600; ++i) {
      const Result<RunRecord> rank0 =
          parse_record(read_file(record_ + ".ranks/rank-00000.plmb").value_or(""), "rank 0");
      const std::vector<RunProcess> found = processes_of(record_);
      if (found.size() == 8 && rank0 && !rank0->steps.empty()) return found;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "the ranks did not begin: " << run.output();
    return {};
  }
  void expect_nobody_left() const {
    for (int i = 0; i < 250 && !processes_of(record_).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(processes_of(record_).empty());
  }
  // The code with which all processes leave, as the launcher reports it.
  void expect_code(int code, const Outcome& outcome) const {
    EXPECT_EQ(here_->exit_code(code), outcome.code) << outcome.out;
    if (here_->name() == "torchrun" && code != 0)
      EXPECT_NE(std::string::npos, outcome.out.find("exitcode  : " + std::to_string(code))) << outcome.out;
  }

  const LauncherHere* here_ = nullptr;
  std::string record_;
};

TEST_P(Launchers, NumbersAreTheSimulators) {
  const std::string sim = temporary("sim.plmb");
  ASSERT_EQ(0, run_engine("run " + kFour + "--train-iters 2 -o " + sim).code);
  const Outcome outcome = BackgroundCommand(command("--train-iters 2")).wait();
  expect_code(0, outcome);
  const RunRecord a = record_at(sim), b = record_at(record_);
  EXPECT_EQ("gloo", b.backend);
  EXPECT_EQ(4, b.ranks_a_machine);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].params_digest, b.steps[i].params_digest);
    EXPECT_EQ(a.steps[i].optimizer_digest, b.steps[i].optimizer_digest);
  }
  expect_nobody_left();
}

TEST_P(Launchers, ADeadlockIsSaidOnceAndAllLeaveWithItsCode) {
  const std::string csv = temporary("dead.csv");
  ASSERT_TRUE(write_file(csv,
                         "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                         "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"));
  const Outcome outcome =
      BackgroundCommand(here_->command("--pp 2 --dp 2 --num-layers 4 --schedule csv --schedule-csv " + csv +
                                       " --microbatches 2 --comm-map one --train-iters 1 --timeout 1 -q -o " +
                                       record_))
          .wait();
  expect_code(3, outcome);
  EXPECT_EQ(1u, count(outcome.out, "the run is given up in step 0")) << outcome.out;
  EXPECT_EQ(1u, count(outcome.out, "deadlock: 4 operations on 2 ranks wait for each other in a circle"));
  EXPECT_TRUE(read_file(record_ + ".ranks/deadlock.json"));
  EXPECT_TRUE(read_file(record_ + ".ranks/flight-recorder-00003.json"));
  EXPECT_FALSE(record_at(record_).verdict_json.empty());
  expect_nobody_left();
}

TEST_P(Launchers, AKilledRankIsNamedOnceAndAllLeaveWithItsCode) {
  BackgroundCommand run(command("--train-iters 100000"));
  const std::vector<RunProcess> all = at_work(run);
  const auto victim = std::find_if(
      all.begin(), all.end(), [](const RunProcess& process) { return process.is_rank && process.rank == 2; });
  ASSERT_NE(all.end(), victim);
  ::kill(victim->pid, SIGKILL);
  const Outcome outcome = run.wait();
  expect_code(128 + SIGKILL, outcome);
  EXPECT_EQ(1u, count(outcome.out, "rank 2 was ended by signal 9")) << outcome.out;
  EXPECT_FALSE(record_at(record_).steps.empty()) << "what was recorded until then is kept";
  expect_nobody_left();
}

// A process that is gone with its rank cannot say anything: the launcher does, or the ranks that miss it.
TEST_P(Launchers, AKilledProcessEndsTheRun) {
  for (const int rank : {2, 0}) {
    BackgroundCommand run(command("--train-iters 100000"));
    const std::vector<RunProcess> all = at_work(run);
    const auto victim = std::find_if(all.begin(), all.end(), [&](const RunProcess& process) {
      return !process.is_rank && process.rank == rank;
    });
    ASSERT_NE(all.end(), victim);
    ::kill(victim->pid, SIGKILL);
    EXPECT_NE(0, run.wait().code);
    expect_nobody_left();
  }
}

TEST_P(Launchers, TheLaunchersEndIsTheRunsEnd) {
  BackgroundCommand run(command("--train-iters 100000"));
  ASSERT_EQ(8u, at_work(run).size());
  ::kill(run.pid(), SIGKILL);
  EXPECT_EQ(128 + SIGKILL, run.wait().code);
  expect_nobody_left();
}

TEST_P(Launchers, AnotherNumberOfRanksIsRefused) {
  std::string line = here_->command("--pp 4 --num-layers 4 -q -o " + record_);
  line.replace(line.find("--pp 4"), 6, "--pp 2");
  const Outcome outcome = BackgroundCommand(line).wait();
  // srun ends tasks that have not come so far when the first one fails, and reports the highest code.
  if (here_->name() == "slurm")
    EXPECT_NE(0, outcome.code);
  else
    expect_code(2, outcome);
  EXPECT_NE(std::string::npos, outcome.out.find("says 4 ranks, and the configuration has 2")) << outcome.out;
  expect_nobody_left();
}

// Each of four processes would start four ranks.
TEST_P(Launchers, NprocInEveryProcessIsRefused) {
  const Outcome outcome = BackgroundCommand(command("--train-iters 1") + " --nproc 4").wait();
  EXPECT_NE(0, outcome.code);
  // torchrun of LibTorch 2 looks at the program's flags too, and takes this one for two of its own.
  if (outcome.out.find("ambiguous option: --nproc") == std::string::npos)
    EXPECT_NE(std::string::npos, outcome.out.find("has started 4 of these processes")) << outcome.out;
  expect_nobody_left();
}

INSTANTIATE_TEST_SUITE_P(Real, Launchers, testing::Values("torchrun", "mpirun", "mpiexec", "slurm"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace plumbline::test
