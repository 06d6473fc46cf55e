// Working memory of a check: lists from the block, stacks that grow, footprints.
#include "sim/verify/scratch.h"

#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "sim/verify/footprint.h"

namespace plumbline::verify {
namespace {

TEST(ScratchStack, GrowsAndGivesTheLastFirst) {
  ScratchStack<std::uint32_t> stack(0);
  std::vector<std::uint32_t> model;
  for (std::uint32_t i = 0; i < 100; ++i) {
    stack.push(i);
    model.push_back(i);
    stack.push_if(i % 3 == 0, 1000 + i);
    if (i % 3 == 0) model.push_back(1000 + i);
  }
  EXPECT_EQ(std::vector<std::uint32_t>(stack.begin(), stack.end()), model);
  EXPECT_EQ(stack.size(), model.size());
  EXPECT_EQ(stack[1], 1000u);
  while (!model.empty()) {
    EXPECT_EQ(stack.pop(), model.back());
    model.pop_back();
  }
  EXPECT_TRUE(stack.empty());
}

TEST(Scratch, ListsKeepTheirValuesWhateverTheyComeFrom) {
  const auto fill = [] {
    const ScratchScope scope;
    std::vector<ScratchVector<int>> lists(300);  // more than the block holds
    for (int round = 0; round < 500; ++round) {
      for (std::size_t i = 0; i < lists.size(); ++i) lists[i].push_back(static_cast<int>(i) + round);
    }
    for (std::size_t i = 0; i < lists.size(); ++i) {
      ASSERT_EQ(lists[i].size(), 500u);
      for (int round = 0; round < 500; ++round)
        ASSERT_EQ(lists[i][static_cast<std::size_t>(round)], static_cast<int>(i) + round);
    }
  };
  fill();
  std::thread other(fill);  // has a block of its own
  fill();
  other.join();
}

TEST(RawVector, TakesGivenValues) {
  const RawVector<int> values(3, 7);
  EXPECT_EQ(values, (RawVector<int>{7, 7, 7}));
}

TEST(Footprint, IsOverdrawnInEitherPart) {
  Footprint room(10, 4);
  room -= {10, 4};
  EXPECT_FALSE(room.overdrawn());
  room -= {1, 0};
  EXPECT_TRUE(room.overdrawn());
  room += {4, 0};
  room -= {0, 5};
  EXPECT_TRUE(room.overdrawn());
  const Footprint missing = room.settle();
  EXPECT_EQ(missing.bytes(), 0);
  EXPECT_EQ(missing.activations(), 5);
  EXPECT_EQ(room.bytes(), 3);
  EXPECT_EQ(room.activations(), 0);
  EXPECT_FALSE(room.overdrawn());
}

}  // namespace
}  // namespace plumbline::verify
