#include "cli/engine/many_processes.h"

#if PLUMBLINE_HAVE_PROCESSES

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/processes/stall.h"
#include "backends/processes/supervisor.h"
#include "backends/processes/watchdog.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/model/stage.h"
#include "engine/runtime/calibrate.h"
#include "engine/runtime/launch_env.h"
#include "sim/nccl_model.h"

namespace plumbline::cli {

namespace fs = std::filesystem;

std::string ranks_folder(const RunOptions& options) { return options.out + ".ranks"; }
std::string rank_record(const RunOptions& options, Rank rank) {
  return fmt::format("{}/rank-{:05}.plmb", ranks_folder(options), rank);
}

Result<RunPlan> plan_of(const RunConfig& config) {
  const Result<const ModelFamily*> family = find_model(config.model.name);
  if (!family) return tl::unexpected(family.error());
  RunPlanOptions wanted;
  wanted.evaluation = config.train.eval_iterations > 0;
  return plan_run(config, (*family)->sizes(config), wanted);
}

namespace {

// An earlier run of the same name that was given up leaves its files. They must not pass for this run's: neither to
// whoever watches a rank's record grow, nor when the records are put together. Each launcher clears its own ranks'.
Status clear_remains(const RunOptions& options, const std::vector<Rank>& ranks) {
  const std::string folder = ranks_folder(options);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("cannot make {}: {}", folder, error.message()));
  std::vector<std::string> remains;
  for (const Rank rank : ranks) {
    if (rank == 0) remains.push_back(folder + "/deadlock.json");
    remains.push_back(rank_record(options, rank));
    for (const std::string& name : processes::last_words_files(rank)) remains.push_back(folder + "/" + name);
  }
  for (const std::string& path : remains) {
    fs::remove(path, error);
    if (error)
      return fail(ErrorCode::kIo,
                  fmt::format("cannot remove {} of an earlier run: {}", path, error.message()));
  }
  return {};
}

// Puts the ranks' records together. Those of other machines may not be in sight; that is said.
int merge(const RunOptions& options, int world, bool whole, const std::string& verdict) {
  std::vector<RunRecord> parts;
  for (Rank rank = 0; rank < world; ++rank) {
    const std::string path = rank_record(options, rank);
    if (!fs::exists(path)) {
      hint(fmt::format("{} is not here; when it is, `plumbline record merge` puts the records together",
                       path));
      return kExitHolds;
    }
    const Result<std::string> bytes = read_file(path);
    if (!bytes) return report(bytes.error());
    Result<RunRecord> part = parse_record(*bytes, path);
    if (!part) return report(part.error());
    parts.push_back(std::move(*part));
  }
  Result<RunRecord> merged = merge_records(parts);
  if (!merged) return report(merged.error());
  (void)join_messages(*merged);
  if (!verdict.empty()) merged->verdict_json = verdict;
  const Status written = write_file(options.out, serialize_record(*merged));
  if (!written) return report(written.error());
  if (whole) {
    print_line(fmt::format("digest  {}", hex64(merged->digest())));
    std::error_code ignored;
    fs::remove_all(ranks_folder(options), ignored);
  }
  print_line(fmt::format("record  {}", options.out));
  return kExitHolds;
}

// The rules that held: over Gloo those of [sim] that its driver keeps, on devices NCCL's own.
NcclModel rules_of(const RunConfig& config, const RunOptions& options) {
  NcclModel model = default_model();
  if (options.backend != "gloo") return model;
  const NcclModel wished = model_of(config.sim);
  model.cross = wished.cross == CrossComm::kStrict ? CrossComm::kStrict : CrossComm::kFree;
  model.launch_blocking = wished.launch_blocking;
  return model;
}

// A run that was given up: where each rank stands, and the circle they wait in, if they do.
int explain(const RunConfig& config, const RunOptions& options, const processes::RunEnd& end,
            std::string& verdict) {
  const Result<RunPlan> plan = plan_of(config);
  if (!plan) return report(plan.error());
  const Result<processes::StallReport> stall =
      processes::explain_stall(config, *plan, rules_of(config, options), end.positions);
  if (!stall) return report(stall.error());
  hint(fmt::format("the run is given up{}: {}",
                   stall->step < 0 ? "" : fmt::format(" in step {}", stall->step), *end.stopped));
  for (const std::string& line : stall->lines) hint("  " + line);
  if (stall->stall.deadlock) {
    hint_finding(*stall->stall.deadlock);
    verdict = verdict_json(stall->verdict);
    const Status written = write_file(ranks_folder(options) + "/deadlock.json", verdict);
    if (!written) (void)report(written.error());
    hint(fmt::format(
        "all waits are in {0}/deadlock.json, what each rank had enqueued in {0}/flight-recorder-*.json",
        ranks_folder(options)));
    return kExitDeadlock;
  }
  if (end.stopped->find("SIGTERM") != std::string::npos) return 128 + 15;
  if (end.stopped->find("SIGINT") != std::string::npos) return 128 + 2;
  for (const OperationRef& late : stall->stall.late)
    hint(fmt::format("not deadlocked: rank {} is late, at {}", late.rank, late.text));
  return kExitTimeout;
}

// In the process of rank 0, when no rank runs any more.
int conclude(const RunConfig& config, const RunOptions& options, const processes::RunEnd& end) {
  int code = kExitHolds;
  std::string verdict;  // of a deadlock
  if (end.culprit) {
    const processes::RankEnd& first = *end.culprit;
    code = first.signal != 0 ? 128 + first.signal : first.code;
    if (first.signal != 0)
      hint(fmt::format("error: rank {} was ended by signal {} ({}); the others were stopped", first.rank,
                       first.signal, ::strsignal(first.signal)));
    else if (code != kExitMismatch && code != kExitFailed && code != kExitUsage && code != kExitMissing)
      hint(fmt::format("rank {} ended first, with exit code {}", first.rank, code));
  } else if (end.stopped) {
    code = explain(config, options, end, verdict);
  }
  std::error_code ignored;
  if (!fs::exists(rank_record(options, 0), ignored)) return code;
  const int merged = merge(options, config.grid.world(), code == kExitHolds, verdict);
  return code != kExitHolds ? code : merged;
}

struct Launch {
  processes::SupervisorOptions supervisor;
  std::optional<LaunchPlace> place;  // absent: --nproc
};

// All ranks here. Under a launcher that has started several of us, each would start them all.
Result<Launch> launch_here(const ValidConfig& valid, const RunOptions& options,
                           const Environment& environment) {
  const int world = valid.config.grid.world();
  if (options.rank || options.world)
    return fail(ErrorCode::kUsage,
                "--nproc starts all ranks here; --rank and --world-size are for one of them");
  LaunchFlags anywhere;  // where rank 0 is does not matter for this
  anywhere.host = "127.0.0.1";
  const Result<std::optional<LaunchPlace>> place = launch_place(anywhere, environment);
  if (place && *place && (*place)->copies > 1)
    return fail(
        ErrorCode::kUsage,
        fmt::format("{} has started {} of these processes, and --nproc {} would start all ranks in each "
                    "- leave it out, or start plumbline by itself",
                    launcher_name((*place)->by), (*place)->copies, options.nproc));
  if (options.nproc != world)
    return fail(ErrorCode::kUsage,
                fmt::format("--nproc is {}, and the configuration has {} ranks (pp {} x dp {})",
                            options.nproc, world, valid.config.parallel.pp, valid.config.parallel.dp));
  Launch launch;
  for (Rank rank = 0; rank < world; ++rank) launch.supervisor.ranks.push_back(rank);
  launch.supervisor.store = {"127.0.0.1", options.port.value_or(0), {}};
  return launch;
}

// The one rank that this process was started for.
Result<Launch> launch_one(const ValidConfig& valid, const RunOptions& options,
                          const Environment& environment) {
  const int world = valid.config.grid.world();
  Result<std::optional<LaunchPlace>> place = launch_place(
      {options.rank, options.world, options.local_rank, options.port, options.host}, environment);
  if (!place) return tl::unexpected(place.error());
  if (!*place)
    return fail(
        ErrorCode::kUsage,
        fmt::format("--backend {1} needs {0} processes: give --nproc {0}, or start it with torchrun, mpirun "
                    "or srun (`plumbline launch --dry-run ...` prints the command)",
                    world, options.backend));
  if ((*place)->world != world)
    return fail(ErrorCode::kUsage,
                fmt::format("{} says {} ranks, and the configuration has {} (pp {} x dp {})",
                            launcher_name((*place)->by), (*place)->world, world, valid.config.parallel.pp,
                            valid.config.parallel.dp));
  Launch launch;
  launch.supervisor.ranks = {(*place)->rank};
  launch.supervisor.store = {(*place)->host, (*place)->port, (*place)->run};
  launch.supervisor.serves_store = (*place)->rank == 0 && !(*place)->store_is_served;
  launch.supervisor.by_launcher = (*place)->by != Launcher::kFlags;
  launch.place = std::move(**place);
  return launch;
}

}  // namespace

int run_in_processes(const ValidConfig& valid, const RunOptions& options, const RankLife& life) {
  // The store answers over sockets, and LibTorch sends without MSG_NOSIGNAL: a rank that has died must not end the
  // launcher that is to name it. Inherited by the ranks.
  std::signal(SIGPIPE, SIG_IGN);
  const Environment environment = launcher_environment();
  Result<Launch> launch =
      options.nproc > 0 ? launch_here(valid, options, environment) : launch_one(valid, options, environment);
  if (!launch) return report(launch.error());
  processes::SupervisorOptions& supervisor = launch->supervisor;
  supervisor.world = valid.config.grid.world();
  supervisor.join_seconds = options.join_timeout;
  const Status cleared = clear_remains(options, supervisor.ranks);
  if (!cleared) return report(cleared.error());
  const Result<processes::Departure> departure = processes::supervise(
      supervisor,
      [&](Rank rank, const processes::StoreAddress& store) {
        return life({rank, supervisor.world, launch->place ? launch->place->local_rank : rank, store});
      },
      [&](const processes::RunEnd& end) { return conclude(valid.config, options, end); });
  if (!departure) {
    std::error_code ignored;
    fs::remove(ranks_folder(options), ignored);
    return report(departure.error());
  }
  if (!departure->alone.empty())
    hint(fmt::format("rank {}: the run is given up: {}; the process of rank 0 did not conclude it",
                     supervisor.ranks.front(), departure->alone));
  return departure->code;
}

}  // namespace plumbline::cli

#endif
