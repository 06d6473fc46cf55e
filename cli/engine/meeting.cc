#include "cli/engine/meeting.h"

#if PLUMBLINE_HAVE_PROCESSES

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "backends/processes/agree.h"
#include "backends/processes/supervisor.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "engine/base/hash.h"
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

}  // namespace

int report_for_all(const Error& error, Rank rank) {
  return rank == 0 ? report(error) : exit_code(error.code);
}

Result<int> ranks_here(ControlChannel& channel) {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  const Result<std::vector<std::string>> all = channel.exchange(name.data());
  if (!all) return tl::unexpected(all.error());
  return static_cast<int>(std::count(all->begin(), all->end(), std::string(name.data())));
}

tl::expected<Meeting, int> meet(const ValidConfig& valid, const RunOptions& options, const RankPlace& place) {
  const Rank rank = place.rank;
  const double seconds = options.join_timeout;
  Meeting meeting;
  Result<std::unique_ptr<processes::Store>> store = processes::Store::join(place.store, seconds);
  if (!store) return tl::unexpected(report(store.error()));
  meeting.store = std::move(*store);
  const Result<processes::RankCard> card = card_of(valid.config, place.world);
  if (!card) return tl::unexpected(report_for_all(card.error(), rank));
  const Status agreed = processes::agree(*meeting.store, rank, *card, seconds);
  if (!agreed) {
    (void)meeting.store->set(processes::done_key(rank), "");
    return tl::unexpected(report_for_all(agreed.error(), rank));
  }
  const Result<Nanoseconds> epoch = epoch_of(*meeting.store, rank, seconds);
  if (!epoch) return tl::unexpected(report(epoch.error()));
  meeting.epoch = *epoch;
  return meeting;
}

}  // namespace plumbline::cli

#endif
