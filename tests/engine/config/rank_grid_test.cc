#include "engine/config/rank_grid.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace plumbline {
namespace {

using Groups = std::vector<std::vector<Rank>>;

RankGrid grid(RankGrid::Sizes sizes, std::string_view order = "tp-cp-ep-dp-pp") {
  Result<RankGrid> made = RankGrid::create(sizes, order);
  EXPECT_TRUE(made) << made.error().text();
  return *made;
}

TEST(RankGrid, OneRankByDefault) {
  const RankGrid one;
  EXPECT_EQ(one.world(), 1);
  EXPECT_EQ(one.shifted(0, Axis::kPp, 5), 0);
  EXPECT_EQ(one.groups(axis_bit(Axis::kPp)), Groups{{0}});
  EXPECT_EQ(one.embedding_groups(), Groups{{0}});
}

// The example in the documentation of Megatron's initialize_model_parallel: 16 ranks, tp = 2, pp = 4.
TEST(RankGrid, MegatronsExample) {
  const RankGrid g = grid({.tp = 2, .dp = 2, .pp = 4});
  EXPECT_EQ(g.groups(axis_bit(Axis::kDp)),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(g.groups(axis_bit(Axis::kTp)),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(g.groups(axis_bit(Axis::kPp)),
            (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(g.embedding_groups(), (Groups{{0, 12}, {1, 13}, {2, 14}, {3, 15}}));
  const AxisSet model = static_cast<AxisSet>(axis_bit(Axis::kTp) | axis_bit(Axis::kPp));
  EXPECT_EQ(g.groups(model), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
}

TEST(RankGrid, PipelineBeforeDataParallel) {
  const RankGrid g = grid({.tp = 2, .dp = 2, .pp = 4}, "tp-cp-ep-pp-dp");
  EXPECT_EQ(g.groups(axis_bit(Axis::kPp)),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(g.groups(axis_bit(Axis::kDp)),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(g.embedding_groups(), (Groups{{0, 6}, {1, 7}, {8, 14}, {9, 15}}));
}

TEST(RankGrid, EmbeddingGroupOfTwoStagesIsBoth) {
  EXPECT_EQ(grid({.dp = 2, .pp = 2}).embedding_groups(), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(grid({.dp = 2, .pp = 1}).embedding_groups(), (Groups{{0}, {1}}));
}

TEST(RankGrid, RefusesBadOrders) {
  for (const char* order : {"", "tp", "tp-cp-ep-dp", "tp-cp-ep-dp-dp", "tp-cp-ep-dp-pp-pp", "tp-cp-ep-dp-xx",
                            "tp-cp-ep-dp-pp-"}) {
    const Result<RankGrid> made = RankGrid::create({}, order);
    ASSERT_FALSE(made) << order;
    EXPECT_NE(made.error().message.find(order), std::string::npos);
  }
}

TEST(RankGrid, RefusesBadSizes) {
  EXPECT_FALSE(RankGrid::create({.dp = 0}));
  EXPECT_FALSE(RankGrid::create({.pp = -1}));
  EXPECT_TRUE(RankGrid::create({.dp = 1024, .pp = 1024}));
  EXPECT_FALSE(RankGrid::create({.dp = 1024, .pp = 1025}));
  // The product of all sizes must not wrap around to a small number.
  EXPECT_FALSE(RankGrid::create({.tp = 1 << 20, .cp = 1 << 20, .ep = 1 << 20, .dp = 1 << 20, .pp = 1 << 20}));
}

// Coordinates, moves and shifts agree with each other for every rank of a grid.
void check_moves(const RankGrid& g) {
  for (Rank rank = 0; rank < g.world(); ++rank) {
    Rank rebuilt = 0;
    for (const Axis axis : kAllAxes) {
      const int here = g.coordinate(rank, axis);
      ASSERT_GE(here, 0);
      ASSERT_LT(here, g.size(axis));
      rebuilt = g.moved(rebuilt, axis, here);
      ASSERT_EQ(g.moved(rank, axis, here), rank);
      for (int delta = -2 * g.size(axis); delta <= 2 * g.size(axis); ++delta) {
        const Rank there = g.shifted(rank, axis, delta);
        const int expected = ((here + delta) % g.size(axis) + g.size(axis)) % g.size(axis);
        ASSERT_EQ(there, g.moved(rank, axis, expected));
        ASSERT_EQ(g.coordinate(there, axis), expected);
        ASSERT_EQ(g.shifted(there, axis, -delta), rank);
        for (const Axis other : kAllAxes) {
          if (other == axis) continue;
          ASSERT_EQ(g.coordinate(there, other), g.coordinate(rank, other));
        }
      }
    }
    ASSERT_EQ(rebuilt, rank) << "five coordinates name one rank";
  }
}

// Groups of every axis set part the world, ascend, and hold the ranks that differ on those axes only.
void check_groups(const RankGrid& g) {
  for (unsigned axes = 0; axes < (1u << kAxes); ++axes) {
    const Groups groups = g.groups(static_cast<AxisSet>(axes));
    std::vector<Rank> all;
    std::size_t size = 1;
    for (const Axis axis : kAllAxes) {
      if ((axes & axis_bit(axis)) != 0) size *= static_cast<std::size_t>(g.size(axis));
    }
    for (const std::vector<Rank>& group : groups) {
      ASSERT_EQ(group.size(), size);
      ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
      for (const Rank member : group) {
        for (const Axis axis : kAllAxes) {
          if ((axes & axis_bit(axis)) != 0) continue;
          ASSERT_EQ(g.coordinate(member, axis), g.coordinate(group.front(), axis));
        }
      }
      if (!all.empty()) {
        ASSERT_LT(groups[0].front(), group.front());
      }
      all.insert(all.end(), group.begin(), group.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<Rank> world(static_cast<std::size_t>(g.world()));
    std::iota(world.begin(), world.end(), 0);
    ASSERT_EQ(all, world);
  }
}

TEST(RankGrid, EverySmallGridInEveryOrder) {
  std::array<std::string, kAxes> names{"cp", "dp", "ep", "pp", "tp"};  // sorted: next_permutation starts here
  do {
    std::string order = names[0];
    for (std::size_t i = 1; i < names.size(); ++i) order += "-" + names[i];
    for (int shape = 0; shape < 32; ++shape) {
      const auto size = [&](int bit, int large) { return (shape >> bit & 1) != 0 ? large : 1; };
      const RankGrid g = grid({size(0, 2), size(1, 2), size(2, 2), size(3, 3), size(4, 3)}, order);
      check_moves(g);
      check_groups(g);
      if (HasFatalFailure()) FAIL() << order << " shape " << shape;
    }
  } while (std::next_permutation(names.begin(), names.end()));
}

}  // namespace
}  // namespace plumbline
