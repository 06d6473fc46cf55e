// `plumbline run --backend gloo`: a process a rank. Each rank writes a record of its own beside OUT, in OUT.ranks/;
// the process that started rank 0 outlives it, puts them together, and says why a run was given up.
#include "cli/common/output.h"
#include "cli/engine/run_session.h"

#if !PLUMBLINE_HAVE_GLOO

namespace plumbline::cli {

int run_over_gloo(const ValidConfig&, const std::string&, const RunOptions&) {
  return report(
      {ErrorCode::kMissing,
       "this plumbline was built without Gloo - install its headers (Debian: libgloo-dev) and build again",
       {}});
}

}  // namespace plumbline::cli

#else

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "backends/gloo/agree.h"
#include "backends/gloo/channel.h"
#include "backends/gloo/driver.h"
#include "backends/gloo/stall.h"
#include "backends/gloo/supervisor.h"
#include "backends/gloo/watchdog.h"
#include "cli/common/exit_codes.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/base/workers.h"
#include "engine/config/explain.h"
#include "engine/model/stage.h"
#include "engine/program/run_plan.h"
#include "engine/runtime/calibrate.h"
#include "engine/runtime/launch_env.h"

namespace plumbline::cli {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const RunOptions& options) { return options.out + ".ranks"; }
std::string record_of(const RunOptions& options, Rank rank) {
  return fmt::format("{}/rank-{:05}.plmb", folder_of(options), rank);
}

Result<RunPlan> plan_of(const RunConfig& config) {
  const Result<const ModelFamily*> family = find_model(config.model.name);
  if (!family) return tl::unexpected(family.error());
  RunPlanOptions wanted;
  wanted.evaluation = config.train.eval_iterations > 0;
  return plan_run(config, (*family)->sizes(config), wanted);
}

Result<gloo::RankCard> card_of(const RunConfig& config, int world) {
  const Result<RunPlan> plan = plan_of(config);
  if (!plan) return tl::unexpected(plan.error());
  Hasher programs;
  for (const Program* program : plan->programs()) programs.u64(program_digest(*program));
  gloo::RankCard card;
  card.world = world;
  card.program = hex64(programs.digest());
  const std::string toml = config_toml(config);
  card.config = hex64(hash64(toml.data(), toml.size()));
  if (config.model.name != "toy") {
    const Result<Text> text = load_text(config.train.data);
    if (!text) return tl::unexpected(text.error());
    card.data = hex64(text->digest);
  }
  return card;
}

// Nanoseconds of the steady clock at the run's start; rank 0 says.
Result<Nanoseconds> epoch_of(gloo::Store& store, Rank rank, double seconds) {
  if (rank == 0) {
    const Nanoseconds now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::steady_clock::now().time_since_epoch())
                                .count();
    PL_TRY(store.set("epoch", std::to_string(now)));
    return now;
  }
  const Result<std::string> text = store.wait_for("epoch", seconds);
  if (!text) return tl::unexpected(text.error());
  return static_cast<Nanoseconds>(std::stoll(*text));
}

// The errors of all ranks are the same when they compare what they run: one of them says it.
int report_for_all(const Error& error, Rank rank) {
  return rank == 0 ? report(error) : exit_code(error.code);
}

// How many ranks run on this machine.
Result<int> ranks_here(ControlChannel& channel) {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  const Result<std::vector<std::string>> all = channel.exchange(name.data());
  if (!all) return tl::unexpected(all.error());
  return static_cast<int>(std::count(all->begin(), all->end(), std::string(name.data())));
}

// The whole life of a rank.
int be_rank(const ValidConfig& valid, const std::string& line, const RunOptions& options, int world,
            Rank rank, const gloo::StoreAddress& address) {
  const double seconds = options.join_timeout;
  Result<std::unique_ptr<gloo::Store>> store = gloo::Store::join(address, seconds);
  if (!store) return report(store.error());
  const Result<gloo::RankCard> card = card_of(valid.config, world);
  if (!card) return report_for_all(card.error(), rank);
  const Status agreed = gloo::agree(**store, rank, *card, seconds);
  if (!agreed) {
    (void)(*store)->set(gloo::done_key(rank), "");
    return report_for_all(agreed.error(), rank);
  }
  Result<Nanoseconds> epoch = epoch_of(**store, rank, seconds);
  if (!epoch) return report(epoch.error());
  Result<std::unique_ptr<gloo::Transport>> transport = gloo::connect(address, "run", rank, world, seconds);
  if (!transport) return report(transport.error());

  gloo::RankStatus status;
  const std::unique_ptr<ControlChannel> channel = gloo::control_channel(**transport, &status);
  const std::unique_ptr<ControlChannel> save_channel = gloo::save_channel(**transport);
  RunOptions own = options;
  own.out = record_of(options, rank);
  RankSession session{gloo::driver(**transport, status, *epoch), channel.get(), save_channel.get(),
                      rank == 0};
  int code = 0;
  {
    const gloo::Watchdog watchdog(**store, status, {options.timeout, folder_of(options), rank});
    const Result<int> neighbours = ranks_here(*channel);
    if (!neighbours) return report(neighbours.error());
    session.cores = usable_cores();
    session.ranks_a_machine = *neighbours;
    code = run_session(valid, line, own, &session);
  }
  (void)(*store)->set(gloo::done_key(rank), "");
  return code;
}

// An earlier run of the same name that was given up leaves its files. They must not pass for this run's: neither to
// whoever watches a rank's record grow, nor when the records are put together. Each launcher clears its own ranks'.
Status clear_remains(const RunOptions& options, const std::vector<Rank>& ranks) {
  const std::string folder = folder_of(options);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("cannot make {}: {}", folder, error.message()));
  std::vector<std::string> remains;
  for (const Rank rank : ranks) {
    if (rank == 0) remains.push_back(folder + "/deadlock.json");
    remains.push_back(record_of(options, rank));
    for (const std::string& name : gloo::last_words_files(rank)) remains.push_back(folder + "/" + name);
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
    const std::string path = record_of(options, rank);
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
    fs::remove_all(folder_of(options), ignored);
  }
  print_line(fmt::format("record  {}", options.out));
  return kExitHolds;
}

// A run that was given up: where each rank stands, and the circle they wait in, if they do.
int explain(const RunConfig& config, const RunOptions& options, const gloo::RunEnd& end,
            std::string& verdict) {
  const Result<RunPlan> plan = plan_of(config);
  if (!plan) return report(plan.error());
  const Result<gloo::StallReport> stall = gloo::explain_stall(config, *plan, end.positions);
  if (!stall) return report(stall.error());
  hint(fmt::format("the run is given up{}: {}",
                   stall->step < 0 ? "" : fmt::format(" in step {}", stall->step), *end.stopped));
  for (const std::string& line : stall->lines) hint("  " + line);
  if (stall->stall.deadlock) {
    hint_finding(*stall->stall.deadlock);
    verdict = verdict_json(stall->verdict);
    const Status written = write_file(folder_of(options) + "/deadlock.json", verdict);
    if (!written) (void)report(written.error());
    hint(fmt::format(
        "all waits are in {0}/deadlock.json, what each rank had enqueued in {0}/flight-recorder-*.json",
        folder_of(options)));
    return kExitDeadlock;
  }
  if (end.stopped->find("SIGTERM") != std::string::npos) return 128 + 15;
  if (end.stopped->find("SIGINT") != std::string::npos) return 128 + 2;
  for (const OperationRef& late : stall->stall.late)
    hint(fmt::format("not deadlocked: rank {} is late, at {}", late.rank, late.text));
  return kExitTimeout;
}

int conclude(const RunConfig& config, const RunOptions& options, int world, const gloo::RunEnd& end,
             bool merges) {
  int code = kExitHolds;
  std::string verdict;  // of a deadlock
  if (const gloo::RankEnd* culprit = end.culprit(); culprit != nullptr) {
    code = culprit->signal != 0 ? 128 + culprit->signal : culprit->code;
    if (culprit->signal != 0)
      hint(fmt::format("error: rank {} was ended by signal {} ({}); the others were stopped", culprit->rank,
                       culprit->signal, ::strsignal(culprit->signal)));
    else if (code != kExitMismatch && code != kExitFailed && code != kExitUsage)
      hint(fmt::format("rank {} ended first, with exit code {}", culprit->rank, code));
  } else if (end.stopped) {
    code = explain(config, options, end, verdict);
  }
  if (!merges) return code;
  std::error_code ignored;
  if (!fs::exists(record_of(options, 0), ignored)) return code;
  const int merged = merge(options, world, code == kExitHolds, verdict);
  return code != kExitHolds ? code : merged;
}

}  // namespace

int run_over_gloo(const ValidConfig& valid, const std::string& line, const RunOptions& options) {
  // The store answers over sockets, and LibTorch sends without MSG_NOSIGNAL: a rank that has died must not end the
  // launcher that is to name it. Inherited by the ranks.
  std::signal(SIGPIPE, SIG_IGN);
  const int world = valid.config.grid.world();
  gloo::SupervisorOptions supervisor;
  supervisor.world = world;
  supervisor.join_seconds = options.join_timeout;
  if (options.nproc > 0) {
    if (options.rank || options.world)
      return report({ErrorCode::kUsage,
                     "--nproc starts all ranks here; --rank and --world-size are for one of them",
                     {}});
    if (options.nproc != world)
      return report({ErrorCode::kUsage,
                     fmt::format("--nproc is {}, and the configuration has {} ranks (pp {} x dp {})",
                                 options.nproc, world, valid.config.parallel.pp, valid.config.parallel.dp),
                     {}});
    for (Rank rank = 0; rank < world; ++rank) supervisor.ranks.push_back(rank);
    supervisor.store = {"127.0.0.1", options.port.value_or(0)};
  } else {
    const Result<std::optional<LaunchPlace>> place =
        launch_place({options.rank, options.world, options.local_rank, options.port, options.host},
                     launcher_environment());
    if (!place) return report(place.error());
    if (!*place)
      return report(
          {ErrorCode::kUsage,
           fmt::format(
               "--backend gloo needs {0} processes: give --nproc {0}, or start it with torchrun, mpirun "
               "or srun (`plumbline launch --dry-run ...` prints the command)",
               world),
           {}});
    if ((*place)->world != world)
      return report({ErrorCode::kUsage,
                     fmt::format("{} says {} ranks, and the configuration has {} (pp {} x dp {})",
                                 launcher_name((*place)->by), (*place)->world, world,
                                 valid.config.parallel.pp, valid.config.parallel.dp),
                     {}});
    supervisor.ranks = {(*place)->rank};
    supervisor.store = {(*place)->host, (*place)->port};
    supervisor.serves_store = (*place)->rank == 0 && !(*place)->store_is_served;
  }
  const Status cleared = clear_remains(options, supervisor.ranks);
  if (!cleared) return report(cleared.error());
  const Result<gloo::RunEnd> end =
      gloo::supervise(supervisor, [&](Rank rank, const gloo::StoreAddress& address) {
        return be_rank(valid, line, options, world, rank, address);
      });
  if (!end) {
    std::error_code ignored;
    fs::remove(folder_of(options), ignored);
    return report(end.error());
  }
  const bool first = std::count(supervisor.ranks.begin(), supervisor.ranks.end(), 0) > 0;
  return conclude(valid.config, options, world, *end, first);
}

}  // namespace plumbline::cli

#endif
