#include "engine/storage/parallel.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/base/workers.h"

namespace plumbline {

Status for_each_at_once(std::size_t count, std::uint64_t bytes,
                        const std::function<Status(std::size_t)>& work, Bound bound) {
  constexpr std::uint64_t kWorthAThread = 8u << 20;
  constexpr std::size_t kMostOnCores = 4, kMostAtADisk = 16;
  const std::size_t most =
      bound == Bound::kDisk ? kMostAtADisk : std::min(kMostOnCores, static_cast<std::size_t>(usable_cores()));
  const std::size_t threads = std::min({most, count, static_cast<std::size_t>(bytes / kWorthAThread)});
  std::vector<Status> results(count);
  std::atomic<bool> failed{false};
  share_out(count, threads, [&](std::size_t i) {
    if (failed) return;
    results[i] = work(i);
    if (!results[i]) failed = true;
  });
  for (const Status& result : results) PL_TRY(result);
  return {};
}

}  // namespace plumbline
