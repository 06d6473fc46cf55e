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

TEST(LaunchCommand, NamesRanksAndNodes) {
  const std::vector<std::string> words{"run", "cfg.toml"};
  EXPECT_EQ(
      "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --mpi=none --kill-on-bad-exit=1 plumbline run cfg.toml",
      *launch_command("slurm", 16, 8, words));
  EXPECT_EQ("torchrun --standalone --nproc-per-node=4 --no-python plumbline run cfg.toml",
            *launch_command("torchrun", 4, 4, words));
  EXPECT_EQ("mpirun -np 4 --map-by ppr:4:node plumbline run cfg.toml",
            *launch_command("mpirun", 4, 4, words));
  EXPECT_EQ("mpirun -np 4 --map-by ppr:4:node plumbline run 'my cfg.toml' '--data.text=it'\\''s'",
            *launch_command("mpirun", 4, 4, {"run", "my cfg.toml", "--data.text=it's"}))
      << "words that a shell would take apart are quoted";
  EXPECT_FALSE(launch_command("mpirun", 4, 3, words));
  EXPECT_FALSE(launch_command("make", 4, 4, words));
}

}  // namespace
}  // namespace plumbline
