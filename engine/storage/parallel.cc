#include "engine/storage/parallel.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/base/workers.h"

namespace plumbline {

Status for_each_at_once(std::size_t count, std::uint64_t bytes,
                        const std::function<Status(std::size_t)>& work) {
  constexpr std::uint64_t kWorthAThread = 8u << 20;
  constexpr std::size_t kMost = 4;
  const std::size_t threads = std::min({kMost, count, static_cast<std::size_t>(bytes / kWorthAThread),
                                        static_cast<std::size_t>(usable_cores())});
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
