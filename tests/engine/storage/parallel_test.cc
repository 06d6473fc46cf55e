#include "engine/storage/parallel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "engine/base/workers.h"

namespace plumbline {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

// How many of `count` works are under way at one time, if each waits until `enough` are, or for half a second.
std::size_t at_once(std::size_t count, std::uint64_t bytes, Bound bound, std::size_t enough) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t now = 0, most = 0;
  const Status done = for_each_at_once(
      count, bytes,
      [&](std::size_t) -> Status {
        std::unique_lock lock(mutex);
        most = std::max(most, ++now);
        changed.notify_all();
        changed.wait_for(lock, std::chrono::milliseconds(500), [&] { return most >= enough; });
        --now;
        return {};
      },
      bound);
  EXPECT_TRUE(done);
  return most;
}

// Verifying a checkpoint with as many readers as a small machine has cores left its disk half idle.
TEST(ForEachAtOnce, ManyWaitForADiskWhateverTheCores) {
  EXPECT_EQ(at_once(32, kPlenty, Bound::kDisk, 16), 16u);
  EXPECT_EQ(at_once(3, kPlenty, Bound::kDisk, 3), 3u);
}

TEST(ForEachAtOnce, NoMoreThanCoresCompute) {
  const auto cores = static_cast<std::size_t>(std::min(usable_cores(), 4));
  EXPECT_EQ(at_once(4 * cores, kPlenty, Bound::kCores, cores), cores);
}

TEST(ForEachAtOnce, LittleIsDoneByTheCaller) { EXPECT_EQ(at_once(4, 1000, Bound::kDisk, 2), 1u); }

TEST(ForEachAtOnce, GivesTheErrorOfTheLowestThatFailed) {
  const Status status = for_each_at_once(
      64, kPlenty,
      [](std::size_t i) -> Status {
        if (i % 2 == 1) return fail(ErrorCode::kIo, std::to_string(i));
        return {};
      },
      Bound::kDisk);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "1");
}

}  // namespace
}  // namespace plumbline
