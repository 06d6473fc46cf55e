// `plumbline run --backend cuda`, a process a rank: messages through NCCL, everything else over the store.
#include "cli/common/output.h"
#include "cli/engine/run_cuda.h"

#if !PLUMBLINE_HAVE_PROCESSES

namespace plumbline::cli {

int run_cuda_in_processes(const ValidConfig&, const std::string&, const RunOptions&) {
  return report(
      {ErrorCode::kMissing,
       "this build's LibTorch has no TCPStore, over which ranks of several processes meet: without --nproc, "
       "--rank and a launcher all ranks are in one process",
       {}});
}

}  // namespace plumbline::cli

#else

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "backends/cuda/tensors/store_ids.h"
#include "backends/processes/channel.h"
#include "backends/processes/supervisor.h"
#include "backends/processes/watchdog.h"
#include "cli/engine/many_processes.h"
#include "cli/engine/meeting.h"

namespace plumbline::cli {
namespace {

constexpr Nanoseconds kDrain = 10'000'000'000;
constexpr std::chrono::seconds kGiveWay(2);
constexpr std::chrono::seconds kEnd(30);  // longer than a watchdog waits before it ends the process itself

// A call that fails because a peer's process has ended must not pass for the run's end: the process that ended first
// has the error to show, and whoever started the ranks ends this one before it says anything. So, too, after the
// watchdog's last words.
void give_way(const RankStatus& status) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (Clock::now() - begin < (status.given_up() ? kEnd : kGiveWay))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// What a rank says small things through; each has a connection of its own.
struct Channels {
  std::unique_ptr<ControlChannel> control, save;
};

Result<Channels> channels_of(const RankPlace& place, double seconds, RankStatus& status) {
  Channels out;
  for (const auto& [channel, name] : {std::pair(&out.control, "run"), std::pair(&out.save, "save")}) {
    Result<std::unique_ptr<processes::Store>> store = processes::Store::join(place.store, seconds);
    if (!store) return tl::unexpected(store.error());
    *channel = processes::store_channel(std::move(*store), name, place.rank, place.world,
                                        channel == &out.control ? &status : nullptr);
  }
  return out;
}

// The ranks of this machine, and which of them this one is.
struct Neighbours {
  int here = 1, local = 0;
};

// Two machines may have one name, a rank that was started by hand has the number of its rank for its place unless it is
// told, and not every launcher says places: so the smaller of what names and places say, and where all places are 0 the
// order of the ranks.
Result<Neighbours> neighbours_of(ControlChannel& channel, int place) {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  const std::string own(name.data());
  const Result<std::vector<std::string>> all = channel.exchange(fmt::format("{} {}", place, own));
  if (!all) return tl::unexpected(all.error());
  int named = 0, last = 0, before = 0;
  for (int rank = 0; rank < channel.size(); ++rank) {
    const std::string& text = (*all)[static_cast<std::size_t>(rank)];
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.substr(space + 1) != own) continue;
    ++named;
    last = std::max(last, std::atoi(text.c_str()));
    if (rank < channel.rank()) ++before;
  }
  if (last == 0) return Neighbours{named, before};
  return Neighbours{std::min(named, last + 1), place};
}

// This rank's device, libraries, and where its stages compute.
Status set_up(const ValidConfig& valid, const RunOptions& options, const Neighbours& ranks,
              cuda::CudaRunOptions& run, RankSession& session, bool& on_device) {
  const Result<cuda::RankDevice> device = cuda::device_of_rank(ranks.local, ranks.here, options.nproc == 0);
  if (!device) return tl::unexpected(device.error());
  run.level = device->level;
  run.one->device = device->device;
  const Result<bool> chosen = choose_compute(valid, options, run, session);
  if (!chosen) return tl::unexpected(chosen.error());
  on_device = *chosen;
  Result<DriverFactory> driver = cuda::driver(run);
  if (!driver) return tl::unexpected(driver.error());
  session.driver = std::move(*driver);
  return {};
}

// The whole life of a rank.
int be_rank(const ValidConfig& valid, const std::string& line, const RunOptions& options,
            const RankPlace& place) {
  const tl::expected<Meeting, int> meeting = meet(valid, options, place);
  if (!meeting) return meeting.error();
  processes::Store& store = *meeting->store;
  RankStatus status;
  const Result<Channels> channels = channels_of(place, options.join_timeout, status);
  if (!channels) return report(channels.error());
  cuda::StoreIds ids(store);
  cuda::CudaRunOptions run;
  run.timeout = kDrain;
  run.one = cuda::OneRank{place.rank, 0, meeting->epoch, &ids, &status, [&status] { give_way(status); }};
  RankSession session;
  session.channel = channels->control.get();
  session.save_channel = channels->save.get();
  session.speaks = place.rank == 0;
  RunOptions own = options;
  own.out = rank_record(options, place.rank);
  int code = 0;
  {
    const processes::Watchdog watchdog(store, status,
                                       {options.timeout, ranks_folder(options), place.rank, "nccl"});
    const Result<Neighbours> ranks = neighbours_of(*session.channel, place.local_rank);
    if (!ranks) return report(ranks.error());
    bool on_device = false;
    const Status set = agree(*session.channel, set_up(valid, options, *ranks, run, session, on_device));
    if (!set) {
      (void)store.set(processes::done_key(place.rank), "");
      return report_for_all(set.error(), place.rank);
    }
    if (session.speaks && !options.quiet)
      print_line(fmt::format("backend {}, a process a rank; stages compute on the {}",
                             cuda::backend_name(run.level), on_device ? "device" : "host"));
    code = run_session(valid, line, own, &session);
  }
  (void)store.set(processes::done_key(place.rank), "");
  return code;
}

}  // namespace

int run_cuda_in_processes(const ValidConfig& valid, const std::string& line, const RunOptions& options) {
  return run_in_processes(valid, options,
                          [&](const RankPlace& place) { return be_rank(valid, line, options, place); });
}

}  // namespace plumbline::cli

#endif
