// Which rank a process is: every launcher's variables, their order, and half-set environments.
#include "engine/runtime/launch_env.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

LaunchPlace place_of(const Environment& environment, const LaunchFlags& flags = {}) {
  const Result<std::optional<LaunchPlace>> place = launch_place(flags, environment);
  EXPECT_TRUE(place) << (place ? "" : place.error().message);
  EXPECT_TRUE(place && *place);
  return place && *place ? **place : LaunchPlace();
}

std::string refusal(const Environment& environment, const LaunchFlags& flags = {}) {
  const Result<std::optional<LaunchPlace>> place = launch_place(flags, environment);
  EXPECT_FALSE(place);
  return place ? "" : place.error().message;
}

const Environment kTorchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "1234"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Environment kSlurm{{"SLURM_PROCID", "9"},
                         {"SLURM_NTASKS", "16"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_JOB_NODELIST", "gpu[003-005,9],x1"},
                         {"SLURM_JOB_ID", "7041234"}};

TEST(LaunchPlace, EveryLauncherIsRead) {
  const LaunchPlace torchrun = place_of(kTorchrun);
  EXPECT_EQ(Launcher::kTorchrun, torchrun.by);
  EXPECT_EQ(3, torchrun.rank);
  EXPECT_EQ(4, torchrun.world);
  EXPECT_EQ(1, torchrun.local_rank);
  EXPECT_EQ("n1", torchrun.host);
  EXPECT_EQ(1234, torchrun.port);
  EXPECT_FALSE(torchrun.store_is_served);

  const LaunchPlace open_mpi = place_of(kOpenMpi);
  EXPECT_EQ(Launcher::kOpenMpi, open_mpi.by);
  EXPECT_EQ(1, open_mpi.rank);
  EXPECT_EQ("127.0.0.1", open_mpi.host) << "all ranks are on one host";
  EXPECT_EQ(29500, open_mpi.port);

  const LaunchPlace slurm = place_of(kSlurm);
  EXPECT_EQ(Launcher::kSlurm, slurm.by);
  EXPECT_EQ(9, slurm.rank);
  EXPECT_EQ(16, slurm.world);
  EXPECT_EQ("gpu003", slurm.host);
  EXPECT_EQ(16234, slurm.port);

  const LaunchPlace pmi = place_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "h"}});
  EXPECT_EQ(Launcher::kPmi, pmi.by);
  EXPECT_EQ("h", pmi.host);

  const Result<std::optional<LaunchPlace>> alone = launch_place({}, {{"HOME", "/root"}, {"RANK", ""}});
  ASSERT_TRUE(alone);
  EXPECT_FALSE(*alone);
}

TEST(LaunchPlace, FlagsComeBeforeTorchrunBeforeOpenMpiBeforeSlurm) {
  Environment all = kTorchrun;
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  all.insert(kSlurm.begin(), kSlurm.end());
  LaunchFlags flags;
  flags.rank = 0;
  flags.world = 2;
  flags.port = 77;
  EXPECT_EQ(Launcher::kFlags, place_of(all, flags).by);
  EXPECT_EQ(77, place_of(all, flags).port);
  EXPECT_EQ(Launcher::kTorchrun, place_of(all).by);
  for (const char* name : {"RANK", "WORLD_SIZE"}) all.erase(name);
  EXPECT_EQ(Launcher::kOpenMpi, place_of(all).by);
  for (const auto& [name, value] : kOpenMpi) all.erase(name);
  EXPECT_EQ(Launcher::kSlurm, place_of(all).by);
  EXPECT_EQ("n1", place_of(all).host) << "MASTER_ADDR is before SLURM's own list";
}

TEST(LaunchPlace, TorchrunsAgentServesTheStore) {
  Environment environment = kTorchrun;
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_TRUE(place_of(environment).store_is_served);
}

TEST(LaunchPlace, HalfSetEnvironmentsAreRefusedByName) {
  EXPECT_NE(std::string::npos, refusal({{"RANK", "1"}}).find("RANK is set, WORLD_SIZE is not"));
  EXPECT_NE(std::string::npos, refusal({{"WORLD_SIZE", "2"}}).find("WORLD_SIZE is set, RANK is not"));
  EXPECT_NE(std::string::npos, refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).find("MASTER_ADDR is not"));
  EXPECT_NE(std::string::npos, refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}).find("OMPI_COMM_WORLD_RANK is not"));
  EXPECT_NE(std::string::npos, refusal({{"PMI_RANK", "0"}}).find("PMI_SIZE is not"));
  EXPECT_NE(std::string::npos, refusal({{"SLURM_NTASKS", "8"}}).find("SLURM_PROCID is not"));
  EXPECT_NE(std::string::npos, refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}).find("MASTER_ADDR"));
  Environment copies = kSlurm;
  copies.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "h"}});
  EXPECT_NE(std::string::npos, refusal(copies).find("every task would be rank 0"));
  LaunchFlags flags;
  flags.rank = 1;
  EXPECT_NE(std::string::npos, refusal({}, flags).find("--rank is given without --world-size"));
  flags.world = 1;
  EXPECT_NE(std::string::npos, refusal({}, flags).find("rank 1 of 1"));
  EXPECT_NE(std::string::npos, refusal({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}).find("PMI_RANK='x'"));
}

TEST(LaunchPlace, FirstHostOfANodeList) {
  EXPECT_EQ("gpu003", first_host("gpu[003-005,9],x1"));
  EXPECT_EQ("a", first_host("a,b"));
  EXPECT_EQ("n7-ib", first_host("n[7,9]-ib,m"));
  EXPECT_EQ("", first_host(""));
}

// A store that torchrun's agent serves outlives a run that it starts again, whose keys must be others.
TEST(LaunchPlace, ARestartedRunHasKeysOfItsOwn) {
  Environment environment = kTorchrun;
  EXPECT_EQ("", place_of(environment).run);
  environment["TORCHELASTIC_RUN_ID"] = "job";
  EXPECT_EQ("job/0/", place_of(environment).run);
  environment["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_EQ("job/2/", place_of(environment).run);
}

// `srun --mpi=pmi2` sets PMI's variables, which do not say where rank 0 is.
TEST(LaunchPlace, PmiUnderSlurmHasSlurmsHost) {
  Environment environment = kSlurm;
  environment.insert({{"PMI_RANK", "3"}, {"PMI_SIZE", "16"}});
  const LaunchPlace place = place_of(environment);
  EXPECT_EQ(Launcher::kPmi, place.by);
  EXPECT_EQ("gpu003", place.host);
  EXPECT_EQ(16234, place.port);
}

// A batch script is started once, whatever the number of tasks of its job.
TEST(LaunchPlace, CopiesOfAProcess) {
  EXPECT_EQ(4, place_of(kTorchrun).copies);
  EXPECT_EQ(2, place_of(kOpenMpi).copies);
  EXPECT_EQ(1, place_of(kSlurm).copies);
  Environment step = kSlurm;
  step["SLURM_STEP_NUM_TASKS"] = "16";
  EXPECT_EQ(16, place_of(step).copies);
}

TEST(LaunchCommand, NamesRanksAndNodes) {
  const std::vector<std::string> words{"run", "cfg.toml"};
  const LaunchShape four{4, 4, false};
  EXPECT_EQ(
      "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --mpi=none --kill-on-bad-exit=1 plumbline run cfg.toml",
      *launch_command("slurm", {16, 8, false}, words));
  EXPECT_EQ(
      "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --gpus-per-node=8 --mpi=none --kill-on-bad-exit=1 "
      "plumbline "
      "run cfg.toml",
      *launch_command("slurm", {16, 8, false, true}, words));
  EXPECT_EQ(
      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc_per_node=4 --no_python plumbline "
      "run "
      "cfg.toml",
      *launch_command("torchrun", four, words));
  EXPECT_EQ("mpirun -np 4 --map-by ppr:4:node:oversubscribe --bind-to none plumbline run cfg.toml",
            *launch_command("mpirun", four, words));
  EXPECT_EQ(
      "MASTER_ADDR=$HOST MASTER_PORT=29500 mpirun --allow-run-as-root -np 16 --map-by "
      "ppr:8:node:oversubscribe "
      "--bind-to none -x MASTER_ADDR -x MASTER_PORT plumbline run cfg.toml",
      *launch_command("mpirun", {16, 8, true}, words));
  EXPECT_EQ("mpiexec -n 4 -ppn 4 plumbline run 'my cfg.toml' '--data.text=it'\\''s'",
            *launch_command("mpiexec", four, {"run", "my cfg.toml", "--data.text=it's"}))
      << "words that a shell would take apart are quoted";
  EXPECT_FALSE(launch_command("mpirun", {4, 3, false}, words));
  EXPECT_FALSE(launch_command("make", four, words));
}

}  // namespace
}  // namespace plumbline
