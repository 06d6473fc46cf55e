// Named random states: independent of each other and of what is drawn outside, and exactly where they were
// after a load.
#include "engine/checkpoint/rng_tracker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace plumbline::test {
namespace {

at::Tensor draws(RngTracker& tracker, const std::string& name, std::int64_t count) {
  at::Tensor out;
  EXPECT_TRUE(tracker.fork(name, [&] { out = at::rand({count}); }));
  return out;
}

TEST(RngTracker, StreamsAndStates) {
  RngTracker one, two;
  for (RngTracker* tracker : {&one, &two}) {
    ASSERT_TRUE(tracker->add("model-parallel-rng", 1234));
    ASSERT_TRUE(tracker->add("expert-parallel-rng", 1235));
  }
  const at::Tensor outside = cpu_rng_state();
  const at::Tensor first = draws(one, "model-parallel-rng", 5);
  EXPECT_TRUE(at::equal(cpu_rng_state(), outside));
  (void)at::rand({100});  // outside draws change nothing inside
  (void)draws(two, "expert-parallel-rng", 7);
  EXPECT_TRUE(at::equal(draws(two, "model-parallel-rng", 5), first));
  EXPECT_FALSE(at::equal(draws(one, "expert-parallel-rng", 5), first));

  const StateDict saved = one.state_dict();
  const at::Tensor next = draws(one, "model-parallel-rng", 9);
  RngTracker resumed;
  ASSERT_TRUE(resumed.load_state_dict(saved));
  EXPECT_TRUE(at::equal(draws(resumed, "model-parallel-rng", 9), next));
  EXPECT_EQ(first_difference(StateValue(resumed.state_dict()), StateValue(one.state_dict())), "");
}

TEST(RngTracker, CudaStatesRoundTripWithoutADevice) {
  RngTracker tracker;
  const StateDict states{{"model-parallel-rng", at::arange(16).to(at::kByte)}, {"cpu", cpu_rng_state()}};
  ASSERT_TRUE(tracker.load_state_dict(states));
  EXPECT_EQ(first_difference(StateValue(tracker.state_dict().at("model-parallel-rng")),
                             states.at("model-parallel-rng")),
            "");
  EXPECT_TRUE(tracker.fork("cpu", [] { (void)at::rand({1}); }));
  EXPECT_NE(tracker.fork("model-parallel-rng", [] {}).error().message.find("is of a CUDA generator"),
            std::string::npos);
}

TEST(RngTracker, Refusals) {
  RngTracker tracker;
  ASSERT_TRUE(tracker.add("a", 1));
  EXPECT_FALSE(tracker.add("a", 2));
  EXPECT_NE(tracker.add("b", 1).error().message.find("both would draw the same"), std::string::npos);
  EXPECT_FALSE(tracker.fork("none", [] {}));
  EXPECT_FALSE(tracker.load_state_dict({}));
  EXPECT_FALSE(tracker.load_state_dict(StateDict{{"a", 3}}));
  EXPECT_NE(tracker.load_state_dict(StateDict{{"a", at::zeros({3}).to(at::kByte)}})
                .error()
                .message.find("a state of the CPU generator is"),
            std::string::npos);
  EXPECT_TRUE(tracker.state_dict().contains("a"));
}

}  // namespace
}  // namespace plumbline::test
