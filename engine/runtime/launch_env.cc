#include "engine/runtime/launch_env.h"

#include <cctype>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "engine/base/shell_line.h"
#include "engine/base/text.h"

namespace plumbline {
namespace {

constexpr int kDefaultPort = 29500;

Result<int> number(const std::string& name, const std::string& text, int least) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value < least || value > 1'000'000'000) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}='{}' is not a number from {} on - unset it, or give --rank and --world-size",
                            name, text, least));
  }
  return static_cast<int>(value);
}

struct Names {
  Launcher launcher;
  const char* rank;
  const char* world;
  const char* local;
  const char* local_world;
};
constexpr Names kNames[] = {
    {Launcher::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {Launcher::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::kPmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {Launcher::kSlurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};

class Detector {
 public:
  Detector(const LaunchFlags& flags, const Environment& environment)
      : flags_(flags), environment_(environment) {}

  Result<std::optional<LaunchPlace>> run() {
    if (flags_.rank || flags_.world) return by_flags();
    for (const Names& names : kNames) {
      const std::optional<std::string> rank = get(names.rank), world = get(names.world);
      if (!rank && !world) continue;
      if (!rank || !world) return half_set(names, rank.has_value());
      return by(names, *rank, *world);
    }
    return std::optional<LaunchPlace>();
  }

 private:
  tl::unexpected<Error> half_set(const Names& names, bool rank) const {
    return fail(
        ErrorCode::kUsage,
        fmt::format("the environment of {} is half set: {} is set, {} is not - start the ranks with their "
                    "launcher, unset it, or give --rank and --world-size",
                    launcher_name(names.launcher), rank ? names.rank : names.world,
                    rank ? names.world : names.rank));
  }

  Result<std::optional<LaunchPlace>> by_flags() {
    if (!flags_.rank || !flags_.world)
      return fail(ErrorCode::kUsage,
                  fmt::format("{} is given without {}", flags_.rank ? "--rank" : "--world-size",
                              flags_.rank ? "--world-size" : "--rank"));
    LaunchPlace place;
    place.by = Launcher::kFlags;
    place.rank = *flags_.rank;
    place.world = *flags_.world;
    place.local_rank = flags_.local_rank.value_or(place.rank);
    return finish(place, std::string("127.0.0.1"), kDefaultPort);
  }

  Result<std::optional<LaunchPlace>> by(const Names& names, const std::string& rank,
                                        const std::string& world) {
    LaunchPlace place;
    place.by = names.launcher;
    const Result<int> own = number(names.rank, rank, 0);
    if (!own) return tl::unexpected(own.error());
    place.rank = *own;
    const bool step = names.launcher == Launcher::kSlurm && get("SLURM_STEP_NUM_TASKS");
    const Result<int> all = step ? number("SLURM_STEP_NUM_TASKS", *get("SLURM_STEP_NUM_TASKS"), 1)
                                 : number(names.world, world, 1);
    if (!all) return tl::unexpected(all.error());
    place.world = *all;
    place.copies = names.launcher == Launcher::kSlurm && !step ? 1 : place.world;
    if (const std::optional<std::string> local = get(names.local)) {
      const Result<int> value = number(names.local, *local, 0);
      if (!value) return tl::unexpected(value.error());
      place.local_rank = *value;
    }
    if (names.launcher == Launcher::kTorchrun) return torchrun(place);
    if (names.launcher == Launcher::kSlurm) return slurm(place);
    const std::optional<std::string> local_world = get(names.local_world);
    const bool one_host = local_world && *local_world == std::to_string(place.world);
    if (one_host) return finish(place, std::string("127.0.0.1"), kDefaultPort);
    return slurm(
        place);  // which may have started them: `srun --mpi=pmi2` sets PMI's variables, and mpirun asks it
  }

  Result<std::optional<LaunchPlace>> torchrun(LaunchPlace place) {
    if (!get("MASTER_ADDR") && !flags_.host)
      return fail(
          ErrorCode::kUsage,
          "the environment of torchrun is half set: RANK and WORLD_SIZE are set, MASTER_ADDR is not - give "
          "--master-addr");
    const std::optional<std::string> tasks = get("SLURM_NTASKS");
    if (place.world == 1 && tasks && *tasks != "1" && get("SLURM_PROCID"))
      return fail(
          ErrorCode::kUsage,
          fmt::format("WORLD_SIZE is 1, and SLURM_NTASKS is {}: every task would be rank 0 - unset RANK and "
                      "WORLD_SIZE, or start one task a node",
                      *tasks));
    const std::optional<std::string> agent = get("TORCHELASTIC_USE_AGENT_STORE");
    place.store_is_served = agent && (*agent == "True" || *agent == "1" || *agent == "true");
    if (const std::optional<std::string> run = get("TORCHELASTIC_RUN_ID"))
      place.run = fmt::format("{}/{}/", *run, get("TORCHELASTIC_RESTART_COUNT").value_or("0"));
    return finish(place, std::nullopt, kDefaultPort);
  }

  // Port: the last four digits of the job's number, behind 15000, as others that start under SLURM do.
  Result<std::optional<LaunchPlace>> slurm(const LaunchPlace& place) {
    std::optional<std::string> nodes = get("SLURM_STEP_NODELIST");
    if (!nodes) nodes = get("SLURM_JOB_NODELIST");
    int port = kDefaultPort;
    if (const std::optional<std::string> job = get("SLURM_JOB_ID")) {
      const Result<int> id = number("SLURM_JOB_ID", job->size() > 4 ? job->substr(job->size() - 4) : *job, 0);
      if (!id) return tl::unexpected(id.error());
      port = 15000 + *id;
    }
    return finish(place, nodes ? std::optional<std::string>(first_host(*nodes)) : std::nullopt, port);
  }

  // Flags before MASTER_ADDR and MASTER_PORT before what the launcher's own variables say.
  Result<std::optional<LaunchPlace>> finish(LaunchPlace place, const std::optional<std::string>& host,
                                            int port) {
    if (place.rank < 0 || place.rank >= place.world)
      return fail(ErrorCode::kUsage, fmt::format("rank {} of {} ranks, by {}: ranks count from 0", place.rank,
                                                 place.world, launcher_name(place.by)));
    const std::optional<std::string> address = get("MASTER_ADDR");
    place.host = flags_.host ? *flags_.host : address ? *address : host.value_or("");
    if (place.host.empty())
      return fail(ErrorCode::kUsage,
                  fmt::format("{} does not say where rank 0 is: set MASTER_ADDR, or give --master-addr",
                              launcher_name(place.by)));
    place.port = port;
    if (flags_.port) {
      place.port = *flags_.port;
    } else if (const std::optional<std::string> text = get("MASTER_PORT")) {
      const Result<int> value = number("MASTER_PORT", *text, 0);
      if (!value) return tl::unexpected(value.error());
      place.port = *value;
    }
    if (place.port < 0 || place.port > 65535)
      return fail(ErrorCode::kUsage, fmt::format("port {}: from 0 to 65535", place.port));
    return std::optional<LaunchPlace>(std::move(place));
  }

  std::optional<std::string> get(const std::string& name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }

  const LaunchFlags& flags_;
  const Environment& environment_;
};

}  // namespace

std::string_view launcher_name(Launcher launcher) {
  switch (launcher) {
    case Launcher::kFlags:
      return "--rank and --world-size";
    case Launcher::kTorchrun:
      return "torchrun";
    case Launcher::kOpenMpi:
      return "Open MPI";
    case Launcher::kPmi:
      return "PMI";
    case Launcher::kSlurm:
      return "SLURM";
  }
  return "";
}

Environment launcher_environment() {
  Environment environment;
  std::vector<const char*> names{"MASTER_ADDR",
                                 "MASTER_PORT",
                                 "TORCHELASTIC_USE_AGENT_STORE",
                                 "TORCHELASTIC_RUN_ID",
                                 "TORCHELASTIC_RESTART_COUNT",
                                 "SLURM_STEP_NUM_TASKS",
                                 "SLURM_STEP_NODELIST",
                                 "SLURM_JOB_ID",
                                 "SLURM_JOB_NODELIST"};
  for (const Names& of : kNames) names.insert(names.end(), {of.rank, of.world, of.local, of.local_world});
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr) environment.emplace(name, value);
  }
  return environment;
}

Result<std::optional<LaunchPlace>> launch_place(const LaunchFlags& flags, const Environment& environment) {
  return Detector(flags, environment).run();
}

std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t close = std::min(list.find(']', at), list.size());
    const std::string_view inside = list.substr(at + 1, close - at - 1);
    host += inside.substr(0, inside.find_first_of("-,"));
    at = close;
  }
  return host;
}

namespace {

// Torchrun of LibTorch 1.13 knows underscores alone, that of 2.11 both. The latter shares its own store with the ranks,
// in its LibTorch's protocol, which others need not speak: the process of rank 0 serves ours.
std::string torchrun_command(const LaunchShape& shape, int nodes) {
  const std::string where =
      nodes == 1 ? std::string("--standalone")
                 : fmt::format("--nnodes={} --rdzv_backend=c10d --rdzv_endpoint=$HOST:29400", nodes);
  return fmt::format(
      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun {} --nproc_per_node={} --no_python plumbline", where,
      shape.per_node);
}

// Open MPI. A rank has threads beside its host, so it is bound to no core; slots are taken for cores where nobody says
// otherwise, and ranks may be more.
std::string open_mpi_command(const LaunchShape& shape, int nodes) {
  return fmt::format("{}mpirun{} -np {} --map-by ppr:{}:node:oversubscribe --bind-to none{} plumbline",
                     nodes == 1 ? "" : "MASTER_ADDR=$HOST MASTER_PORT=29500 ",
                     shape.as_root ? " --allow-run-as-root" : "", shape.ranks, shape.per_node,
                     nodes == 1 ? "" : " -x MASTER_ADDR -x MASTER_PORT");
}

}  // namespace

Result<std::string> launch_command(std::string_view launcher, const LaunchShape& shape,
                                   const std::vector<std::string>& arguments) {
  if (shape.ranks % shape.per_node != 0)
    return fail(ErrorCode::kUsage,
                fmt::format("{} ranks do not fill nodes of {}: give a --per-node that divides them",
                            shape.ranks, shape.per_node));
  const int nodes = shape.ranks / shape.per_node;
  const std::string line = " " + shell_line(arguments);
  if (launcher == "slurm")
    return fmt::format(
        "srun --nodes={} --ntasks={} --ntasks-per-node={}{} --mpi=none --kill-on-bad-exit=1 plumbline{}",
        nodes, shape.ranks, shape.per_node,
        shape.gpus ? fmt::format(" --gpus-per-node={}", shape.per_node) : "", line);
  if (launcher == "torchrun") return torchrun_command(shape, nodes) + line;
  if (launcher == "mpirun") return open_mpi_command(shape, nodes) + line;
  if (launcher == "mpiexec")  // Hydra passes the environment on by itself
    return fmt::format("{}mpiexec -n {} -ppn {} plumbline{}",
                       nodes == 1 ? "" : "MASTER_ADDR=$HOST MASTER_PORT=29500 ", shape.ranks, shape.per_node,
                       line);
  return fail(ErrorCode::kUsage,
              fmt::format("launcher '{}' is not known; known are slurm, torchrun, mpirun (Open MPI), mpiexec "
                          "(Hydra: MPICH, Intel MPI)",
                          launcher));
}

}  // namespace plumbline
