#include "engine/base/workers.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(ShareOut, EveryPieceOnce) {
  for (const std::size_t workers : {0u, 1u, 3u, 50u}) {
    for (const std::size_t count : {0u, 1u, 7u, 1000u}) {
      std::vector<std::atomic<int>> done(count);
      share_out(count, workers, [&](std::size_t i) { ++done[i]; });
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(done[i], 1) << i << " of " << count;
    }
  }
}

}  // namespace
}  // namespace plumbline
