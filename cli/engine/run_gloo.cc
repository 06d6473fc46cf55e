// `plumbline run --backend gloo`: a process a rank, messages over LibTorch's Gloo.
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
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "backends/gloo/channel.h"
#include "backends/gloo/driver.h"
#include "backends/processes/agree.h"
#include "backends/processes/supervisor.h"
#include "backends/processes/watchdog.h"
#include "cli/common/exit_codes.h"
#include "cli/engine/many_processes.h"
#include "engine/base/hash.h"
#include "engine/base/workers.h"
#include "engine/config/explain.h"
#include "engine/train/text.h"

namespace plumbline::cli {
namespace {

Result<processes::RankCard> card_of(const RunConfig& config, int world) {
  const Result<RunPlan> plan = plan_of(config);
  if (!plan) return tl::unexpected(plan.error());
  Hasher programs;
  for (const Program* program : plan->programs()) programs.u64(program_digest(*program));
  processes::RankCard card;
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
Result<Nanoseconds> epoch_of(processes::Store& store, Rank rank, double seconds) {
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
int be_rank(const ValidConfig& valid, const std::string& line, const RunOptions& options,
            const RankPlace& place) {
  const auto& [rank, world, local_rank, address] = place;
  const double seconds = options.join_timeout;
  Result<std::unique_ptr<processes::Store>> store = processes::Store::join(address, seconds);
  if (!store) return report(store.error());
  const Result<processes::RankCard> card = card_of(valid.config, world);
  if (!card) return report_for_all(card.error(), rank);
  const Status agreed = processes::agree(**store, rank, *card, seconds);
  if (!agreed) {
    (void)(*store)->set(processes::done_key(rank), "");
    return report_for_all(agreed.error(), rank);
  }
  Result<Nanoseconds> epoch = epoch_of(**store, rank, seconds);
  if (!epoch) return report(epoch.error());
  Result<std::unique_ptr<gloo::Transport>> transport = gloo::connect(address, "run", rank, world, seconds);
  if (!transport) return report(transport.error());

  RankStatus status;
  const std::unique_ptr<ControlChannel> channel = gloo::control_channel(**transport, &status);
  const std::unique_ptr<ControlChannel> save_channel = gloo::save_channel(**transport);
  RunOptions own = options;
  own.out = rank_record(options, rank);
  RankSession session{gloo::driver(**transport, status, *epoch), channel.get(), save_channel.get(),
                      rank == 0};
  int code = 0;
  {
    const processes::Watchdog watchdog(**store, status,
                                       {options.timeout, ranks_folder(options), rank, "gloo"});
    const Result<int> neighbours = ranks_here(*channel);
    if (!neighbours) return report(neighbours.error());
    session.cores = usable_cores();
    session.ranks_a_machine = *neighbours;
    code = run_session(valid, line, own, &session);
  }
  (void)(*store)->set(processes::done_key(rank), "");
  return code;
}

}  // namespace

int run_over_gloo(const ValidConfig& valid, const std::string& line, const RunOptions& options) {
  return run_in_processes(valid, options,
                          [&](const RankPlace& place) { return be_rank(valid, line, options, place); });
}

}  // namespace plumbline::cli

#endif
