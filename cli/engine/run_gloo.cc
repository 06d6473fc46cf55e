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

#include <memory>

#include "backends/gloo/channel.h"
#include "backends/gloo/driver.h"
#include "backends/processes/supervisor.h"
#include "backends/processes/watchdog.h"
#include "cli/engine/many_processes.h"
#include "cli/engine/meeting.h"
#include "engine/base/workers.h"

namespace plumbline::cli {
namespace {

// The whole life of a rank.
int be_rank(const ValidConfig& valid, const std::string& line, const RunOptions& options,
            const RankPlace& place) {
  const auto& [rank, world, local_rank, address] = place;
  const tl::expected<Meeting, int> meeting = meet(valid, options, place);
  if (!meeting) return meeting.error();
  processes::Store& store = *meeting->store;
  if (valid.config.schedule.cuda_graphs) {
    (void)store.set(processes::done_key(rank), "");
    return report_for_all(
        {ErrorCode::kUnsupported,
         "there are no CUDA graphs over Gloo; leave --cuda-graphs off, or give --backend cuda or sim",
         {}},
        rank);
  }
  Result<std::unique_ptr<gloo::Transport>> transport =
      gloo::connect(address, "run", rank, world, options.join_timeout);
  if (!transport) return report(transport.error());

  RankStatus status;
  const std::unique_ptr<ControlChannel> channel = gloo::control_channel(**transport, &status);
  const std::unique_ptr<ControlChannel> save_channel = gloo::save_channel(**transport);
  RunOptions own = options;
  own.out = rank_record(options, rank);
  RankSession session{gloo::driver(**transport, status, meeting->epoch), channel.get(), save_channel.get(),
                      rank == 0};
  int code = 0;
  {
    const processes::Watchdog watchdog(store, status, {options.timeout, ranks_folder(options), rank, "gloo"});
    const Result<int> neighbours = ranks_here(*channel);
    if (!neighbours) return report(neighbours.error());
    session.cores = usable_cores();
    session.ranks_a_machine = *neighbours;
    code = run_session(valid, line, own, &session);
  }
  (void)store.set(processes::done_key(rank), "");
  return code;
}

}  // namespace

int run_over_gloo(const ValidConfig& valid, const std::string& line, const RunOptions& options) {
  return run_in_processes(valid, options,
                          [&](const RankPlace& place) { return be_rank(valid, line, options, place); });
}

}  // namespace plumbline::cli

#endif
