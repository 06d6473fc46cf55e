#include "engine/runtime/time_model.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

Kernel kernel_of(KernelKind kind, std::uint16_t stage) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.stage = stage;
  return kernel;
}

RunConfig sample() {
  RunConfig config;
  config.time.forward = {100, 200};
  config.time.backward = {300};
  config.time.optimizer = 77;
  config.time.link = {1000, 1e9};
  config.time.links[{1, 3}] = {5000, 1e6};
  config.time.slow[2] = 1.5;
  return config;
}

TEST(TimeModel, KernelsByStageAndSlowness) {
  const TimeModel time(sample());
  EXPECT_EQ(time.kernel(0, kernel_of(KernelKind::kForward, 1)), 200);
  EXPECT_EQ(time.kernel(0, kernel_of(KernelKind::kBackward, 7)), 300);
  EXPECT_EQ(time.kernel(2, kernel_of(KernelKind::kBackward, 7)), 450);
  EXPECT_EQ(time.kernel(0, kernel_of(KernelKind::kOptimizerStep, 0)), 77);
  EXPECT_EQ(time.kernel(0, kernel_of(KernelKind::kNormSums, 0)), 0);
}

TEST(TimeModel, MessagesByLink) {
  const TimeModel time(sample());
  EXPECT_EQ(time.message(0, 1, 10), 1010);
  EXPECT_EQ(time.message(3, 1, 10), 15000);
  EXPECT_EQ(time.message(2, 2, 10), 0);
}

TEST(TimeModel, CollectivesAroundTheRing) {
  const TimeModel time(sample());
  EXPECT_EQ(time.collective(EndpointKind::kAllReduce, {0, 2}, 10), 2 * 1005);
  EXPECT_EQ(time.collective(EndpointKind::kAllGather, {0, 1, 2}, 10), 2 * 1004);
  EXPECT_EQ(time.collective(EndpointKind::kBroadcast, {0, 1, 3}, 3), 2 * 6000);  // the slow link decides
  EXPECT_EQ(time.collective(EndpointKind::kAllReduce, {0}, 10), 0);
}

TEST(TimeModel, DefaultTakesNoTime) {
  const TimeModel time;
  EXPECT_EQ(time.kernel(0, kernel_of(KernelKind::kForward, 0)), 0);
  EXPECT_EQ(time.message(0, 1, 1 << 30), 0);
  EXPECT_EQ(time.collective(EndpointKind::kAllReduce, {0, 1}, 1 << 30), 0);
}

}  // namespace
}  // namespace plumbline
