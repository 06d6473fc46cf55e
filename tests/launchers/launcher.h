// A launcher that is on this machine, as these tests start runs with it: by the line that `plumbline launch` prints,
// word for word. Where a launcher is not, its tests are skipped with its name.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/run_engine.h"

namespace plumbline::test {

// What a shell says; its exit code.
inline Outcome shell(const std::string& line) { return run_program("/bin/bash", "-c \"" + line + "\""); }

class LauncherHere {
 public:
  // Puts `plumbline` and the launcher under the names that the printed lines have into a folder of its own, which
  // is to come first in PATH: several packages have an mpirun.
  explicit LauncherHere(std::string name)
      : name_(std::move(name)), folder_(testing::TempDir() + "bin-" + name_) {
    namespace fs = std::filesystem;
    fs::create_directories(folder_);
    link("plumbline", PLUMBLINE_EXECUTABLE);
    ::setenv("PATH", (folder_ + ":" + std::getenv("PATH")).c_str(), 1);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    if (name_ == "torchrun") look_for_torchrun();
    if (name_ == "mpirun")
      look_for("mpirun", {"mpirun.openmpi", "mpirun"}, "Open MPI\\|OpenRTE", "Open MPI (openmpi-bin)");
    if (name_ == "mpiexec") look_for("mpiexec", {"mpiexec.hydra", "mpiexec"}, "HYDRA", "Hydra (mpich)");
    if (name_ == "slurm" &&
        shell("srun --overcommit --ntasks=4 --nodes=1 --time=1 --immediate=10 true").code != 0)
      missing_ =
          "SLURM: srun cannot start four tasks here (docs/launch.md says how a machine becomes a cluster of "
          "one)";
  }

  // Empty: it is here.
  const std::string& missing() const { return missing_; }
  const std::string& name() const { return name_; }
  // What the launcher leaves with when all of its processes leave with `code`: torchrun says it in words alone.
  int exit_code(int code) const { return name_ == "torchrun" && code != 0 ? 1 : code; }

  // The command for a run.
  std::string command(const std::string& arguments) const {
    const Outcome printed = run_plumbline("launch --dry-run " + name_ + " " + arguments);
    EXPECT_EQ(0, printed.code) << printed.err;
    return printed.out.substr(0, printed.out.find('\n'));
  }

 private:
  void link(const std::string& name, const std::string& to) const {
    std::error_code ignored;
    std::filesystem::remove(folder_ + "/" + name, ignored);
    std::filesystem::create_symlink(to, folder_ + "/" + name);
  }
  // Hydra looks for its other programs in the folder that it is called in: no link, but a call.
  void name_as(const std::string& name, const std::string& path) const {
    const std::string script = folder_ + "/" + name;
    EXPECT_TRUE(write_file(script, "#!/bin/sh\nexec " + path + " \"$@\"\n"));
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  }
  void look_for(const std::string& as, const std::vector<std::string>& names, const std::string& says,
                const std::string& package) {
    for (const std::string& name : names) {
      if (shell(name + " --version 2>&1 | grep -q '" + says + "'").code != 0) continue;
      const std::string path = shell("command -v " + name).out;
      return name_as(as, path.substr(0, path.find('\n')));
    }
    missing_ = package + ": no " + as + " of it is in PATH";
  }
  // Debian 12's falls over the default of two options of its own on Python 3.11 (a flag of zero is not found).
  void look_for_torchrun() {
    const std::string run = "torchrun --standalone --nproc_per_node=1 --no_python true >/dev/null 2>&1";
    if (shell(run).code == 0) return;
    ::setenv("PET_REDIRECTS", "9:0", 1);
    ::setenv("PET_TEE", "9:0", 1);
    if (shell(run).code != 0) missing_ = "torchrun (python3-torch): it cannot start a process here";
  }

  std::string name_, folder_, missing_;
};

// Looks once a process.
inline const LauncherHere& launcher_here(const std::string& name) {
  static std::map<std::string, LauncherHere> known;
  return known.try_emplace(name, name).first->second;
}

}  // namespace plumbline::test
