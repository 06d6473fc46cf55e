#include "engine/storage/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace plumbline {

Status for_each_at_once(std::size_t count, std::uint64_t bytes,
                        const std::function<Status(std::size_t)>& work) {
  constexpr std::uint64_t kWorthAThread = 8u << 20;
  constexpr std::size_t kMost = 4;
  const std::size_t threads =
      std::min({kMost, count, static_cast<std::size_t>(bytes / kWorthAThread),
                static_cast<std::size_t>(std::max(1u, std::thread::hardware_concurrency()))});
  std::vector<Status> results(count);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto run = [&] {
    while (!failed) {
      const std::size_t i = next++;
      if (i >= count) return;
      results[i] = work(i);
      if (!results[i]) failed = true;
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(run);
  run();
  for (std::thread& thread : others) thread.join();
  for (const Status& result : results) PL_TRY(result);
  return {};
}

}  // namespace plumbline
