// Reductions as NCCL does them: each property that docs/nccl-rules.md names (N66, N88-N99), on the smallest numbers
// that show it.
#include "engine/runtime/reduce_nccl.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/runtime/float8.h"
#include "engine/runtime/half.h"

namespace plumbline {
namespace {

CollectiveNumerics numerics(Numerics kind, std::size_t chunk_bytes = std::size_t{1} << 17, int channels = 1) {
  CollectiveNumerics out;
  out.kind = kind;
  out.chunk_bytes = chunk_bytes;
  out.channels = channels;
  return out;
}

// One row a member.
template <typename T>
std::vector<T> all_reduced(const CollectiveNumerics& how, DType dtype, ReduceOp op,
                           const std::vector<std::vector<T>>& rows, const std::vector<double>& factors = {}) {
  std::vector<const std::byte*> sources;
  for (const std::vector<T>& row : rows) sources.push_back(reinterpret_cast<const std::byte*>(row.data()));
  std::vector<T> out(rows.front().size());
  all_reduce_as(how, dtype, op, sources, reinterpret_cast<std::byte*>(out.data()), out.size(), factors);
  return out;
}
template <typename T>
std::vector<T> reduced_to(const CollectiveNumerics& how, DType dtype, ReduceOp op, std::size_t root,
                          const std::vector<std::vector<T>>& rows) {
  std::vector<const std::byte*> sources;
  for (const std::vector<T>& row : rows) sources.push_back(reinterpret_cast<const std::byte*>(row.data()));
  std::vector<T> out(rows.front().size());
  reduce_as(how, dtype, op, root, sources, reinterpret_cast<std::byte*>(out.data()), out.size());
  return out;
}

using Halves = std::vector<std::vector<std::uint16_t>>;
using Floats = std::vector<std::vector<float>>;

std::uint16_t b(float value) { return float_to_bf16(value); }
std::uint16_t h(float value) { return float_to_f16(value); }
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Numerics kAsNccl[] = {Numerics::kRing, Numerics::kTree, Numerics::kNvls};

TEST(ReduceNccl, N88RingRoundsToTheElementTypeAfterEveryAddition) {
  // 256 + 1 is 256 in bf16: each single one is lost, both together are not. Element 0 ends at member 0 and begins
  // at member 1: 256 + 1 + 1.
  const Halves rows{{b(1)}, {b(256)}, {b(1)}};
  EXPECT_EQ(all_reduced(numerics(Numerics::kRing), DType::kBF16, ReduceOp::kSum, rows)[0], b(256));
  EXPECT_EQ(all_reduced(numerics(Numerics::kNvls), DType::kBF16, ReduceOp::kSum, rows)[0], b(258));
  EXPECT_EQ(all_reduced(numerics(Numerics::kOrdered), DType::kBF16, ReduceOp::kSum, rows)[0], b(258));
  const Halves halves{{h(2048)}, {h(1)}, {h(1)}};
  // To member 0: 1 + 1 + 2048; to member 2: 2048 + 1 + 1.
  EXPECT_EQ(all_reduced(numerics(Numerics::kRing), DType::kF16, ReduceOp::kSum, halves)[0], h(2050));
  EXPECT_EQ(reduced_to(numerics(Numerics::kRing), DType::kF16, ReduceOp::kSum, 2, halves)[0], h(2048));
}

TEST(ReduceNccl, N91ThePartOfALoopDecidesTheOrder) {
  // Three members, chunks of one element: elements 0, 1, 2 end at members 0, 1, 2.
  const CollectiveNumerics ring = numerics(Numerics::kRing, 4);
  EXPECT_EQ(ring_order(ring, 0, 3, 4, 3), (std::vector<std::size_t>{1, 2, 0}));
  EXPECT_EQ(ring_order(ring, 1, 3, 4, 3), (std::vector<std::size_t>{2, 0, 1}));
  EXPECT_EQ(ring_order(ring, 2, 3, 4, 3), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(ring_order(ring, 3, 6, 4, 3), (std::vector<std::size_t>{1, 2, 0}));  // the next loop
  const Floats rows{std::vector<float>(3, 1e8F), std::vector<float>(3, -1e8F), std::vector<float>(3, 1.0F)};
  // -1e8 + 1 loses the 1; so does 1 + 1e8; 1e8 - 1e8 + 1 keeps it.
  EXPECT_EQ(all_reduced(ring, DType::kF32, ReduceOp::kSum, rows), (std::vector<float>{0.0F, 0.0F, 1.0F}));
  // Reduce-scatter and reduce: the part that ends at a member begins with the one after it.
  for (std::size_t root = 0; root < 3; ++root)
    EXPECT_EQ(reduced_to(ring, DType::kF32, ReduceOp::kSum, root, rows)[0], root == 2 ? 1.0F : 0.0F) << root;
}

TEST(ReduceNccl, N91ChannelsAndTheLastLoop) {
  // Two channels, two members, chunks of two elements: loops of eight; the last four are divided in ones.
  const CollectiveNumerics ring = numerics(Numerics::kRing, 8, 2);
  std::vector<std::size_t> firsts;
  for (std::size_t i = 0; i < 12; ++i) firsts.push_back(ring_order(ring, i, 12, 4, 2)[0]);
  EXPECT_EQ(firsts, (std::vector<std::size_t>{1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0}));
  // A buffer smaller than a loop is divided among all parts.
  std::set<std::size_t> seen;
  for (std::size_t i = 0; i < 8; ++i)
    seen.insert(ring_order(numerics(Numerics::kRing, 1 << 20), i, 8, 4, 4)[0]);
  EXPECT_EQ(seen.size(), 4U);
}

TEST(ReduceNccl, N94BucketsChangeTheBits) {
  const CollectiveNumerics ring = numerics(Numerics::kRing, 4);
  const Floats whole{std::vector<float>(3, 1e8F), std::vector<float>(3, -1e8F), std::vector<float>(3, 1.0F)};
  const Floats part{{1e8F}, {-1e8F}, {1.0F}};
  EXPECT_NE(all_reduced(ring, DType::kF32, ReduceOp::kSum, whole)[2],
            all_reduced(ring, DType::kF32, ReduceOp::kSum, part)[0]);
  // Our own order does not depend on where an element lies.
  const CollectiveNumerics ours = numerics(Numerics::kOrdered);
  EXPECT_EQ(all_reduced(ours, DType::kF32, ReduceOp::kSum, whole)[2],
            all_reduced(ours, DType::kF32, ReduceOp::kSum, part)[0]);
}

TEST(ReduceNccl, N92TreesCoverAllNodes) {
  for (int nodes = 1; nodes < 40; ++nodes) {
    for (const bool mirrored : {false, true}) {
      const std::vector<TreeNode> tree = reduction_tree(nodes, mirrored);
      int roots = 0, edges = 0;
      for (int node = 0; node < nodes; ++node) {
        const TreeNode& at = tree[static_cast<std::size_t>(node)];
        roots += at.parent < 0 ? 1 : 0;
        for (const int child : at.children) {
          EXPECT_EQ(tree[static_cast<std::size_t>(child)].parent, node);
          ++edges;
        }
        int depth = 0;
        for (int up = node; up >= 0; up = tree[static_cast<std::size_t>(up)].parent) ++depth;
        EXPECT_LE(depth, 2 + static_cast<int>(std::log2(nodes)));
      }
      EXPECT_EQ(roots, 1);
      EXPECT_EQ(edges, nodes - 1);
    }
  }
  const auto first = reduction_tree(8, false), second = reduction_tree(8, true);
  EXPECT_EQ(first[0].children, (std::vector<int>{4}));
  EXPECT_EQ(second[7].children, (std::vector<int>{3}));
  // No node has children in both trees.
  for (std::size_t node = 1; node < 7; ++node)
    EXPECT_TRUE(first[node].children.empty() || second[node].children.empty()) << node;
}

TEST(ReduceNccl, N92OwnThenChildren) {
  // Three nodes: 0 is the root, 2 its child, 1 the child of 2: x0 + (x2 + x1).
  const CollectiveNumerics tree = numerics(Numerics::kTree);
  EXPECT_EQ(reduction_tree(3, false)[2].children, (std::vector<int>{1}));
  EXPECT_EQ(all_reduced(tree, DType::kF32, ReduceOp::kSum, Floats{{1.0F}, {1e8F}, {-1e8F}})[0], 1.0F);
  EXPECT_EQ(all_reduced(tree, DType::kF32, ReduceOp::kSum, Floats{{1e8F}, {1.0F}, {-1e8F}})[0], 0.0F);
  // Four members of one node are a chain: x0 + (x1 + (x2 + x3)).
  CollectiveNumerics chain = tree;
  chain.ranks_per_node = 4;
  EXPECT_EQ(all_reduced(chain, DType::kF32, ReduceOp::kSum, Floats{{1.0F}, {1.0F}, {1e8F}, {-1e8F}})[0],
            2.0F);
  EXPECT_EQ(all_reduced(chain, DType::kF32, ReduceOp::kSum, Floats{{-1e8F}, {1e8F}, {1.0F}, {1.0F}})[0],
            0.0F);
}

TEST(ReduceNccl, N95AverageMultipliesFirst) {
  const Halves sevens{{h(7)}, {h(7)}, {h(7)}};
  for (const Numerics kind : kAsNccl) {
    // 7 times 1/3 is 2.33203 in f16; three times that is less than 7.
    EXPECT_EQ(all_reduced(numerics(kind), DType::kF16, ReduceOp::kAvg, sevens)[0], h(6.99609375F));
    // Integers are divided once, towards zero.
    using Ints = std::vector<std::vector<std::int32_t>>;
    EXPECT_EQ(all_reduced(numerics(kind), DType::kI32, ReduceOp::kAvg, Ints{{3}, {4}})[0], 3);
    EXPECT_EQ(all_reduced(numerics(kind), DType::kI32, ReduceOp::kAvg, Ints{{-3}, {-4}})[0], -3);
    // A power of two scales exactly.
    EXPECT_EQ(all_reduced(numerics(kind), DType::kF32, ReduceOp::kAvg, Floats{{0.1F}, {0.3F}})[0],
              0.05F + 0.15F);
  }
  EXPECT_EQ(all_reduced(numerics(Numerics::kOrdered), DType::kF16, ReduceOp::kAvg, sevens)[0], h(7));
}

TEST(ReduceNccl, N96AFactorAMemberMultipliesBeforeTheSum) {
  for (const Numerics kind : kAsNccl) {
    EXPECT_EQ(all_reduced(numerics(kind), DType::kF32, ReduceOp::kSum, Floats{{3.0F}, {5.0F}}, {2.0, 0.5})[0],
              8.5F);
    // The factor is rounded to the type, 1/3 to 0.333251953 in f16, and so is each product.
    const Halves sevens{{h(7)}, {h(7)}, {h(7)}};
    const std::vector<double> thirds(3, 1.0 / 3.0);
    EXPECT_EQ(all_reduced(numerics(kind), DType::kF16, ReduceOp::kSum, sevens, thirds)[0], h(6.99609375F));
    EXPECT_EQ(all_reduced(numerics(kind), DType::kF16, ReduceOp::kSum, sevens, thirds),
              all_reduced(numerics(kind), DType::kF16, ReduceOp::kAvg, sevens));
    using Ints = std::vector<std::vector<std::int32_t>>;
    EXPECT_EQ(all_reduced(numerics(kind), DType::kI32, ReduceOp::kSum, Ints{{3}, {4}}, {2, -1})[0], 2);
  }
  // The default adds the products in member order.
  EXPECT_EQ(all_reduced(numerics(Numerics::kOrdered), DType::kF32, ReduceOp::kSum,
                        Floats{{1e8F}, {-1e8F}, {1.0F}}, {1.0, 1.0, 2.0})[0],
            2.0F);
}

using Bytes8 = std::vector<std::vector<std::uint8_t>>;
constexpr std::uint8_t e4(float value) { return float_to_f8<E4M3>(value); }
constexpr std::uint8_t e5(float value) { return float_to_f8<E5M2>(value); }

TEST(ReduceNccl, N88EightBitTypesRoundAndSaturate) {
  for (const Numerics kind : kAsNccl) {
    const CollectiveNumerics how = numerics(kind);
    EXPECT_EQ(all_reduced(how, DType::kF8E4M3, ReduceOp::kSum, Bytes8{{e4(1.5F)}, {e4(2.0F)}})[0], e4(3.5F));
    // No sum is infinite: it is the largest number.
    EXPECT_EQ(all_reduced(how, DType::kF8E4M3, ReduceOp::kSum, Bytes8{{e4(448)}, {e4(448)}})[0], e4(448));
    EXPECT_EQ(all_reduced(how, DType::kF8E5M2, ReduceOp::kSum, Bytes8{{e5(-57344)}, {e5(-57344)}})[0],
              e5(-57344));
    EXPECT_EQ(all_reduced(how, DType::kF8E4M3, ReduceOp::kAvg, Bytes8{{e4(448)}, {e4(448)}})[0], e4(448));
    EXPECT_EQ(all_reduced(how, DType::kF8E5M2, ReduceOp::kMax, Bytes8{{e5(kNan)}, {e5(-1)}})[0], e5(-1));
  }
  // 16 + 1 is 16 in e4m3, but the switch adds in f16: both together are not lost.
  const Bytes8 rows{{e4(1)}, {e4(16)}, {e4(1)}};
  EXPECT_EQ(all_reduced(numerics(Numerics::kRing), DType::kF8E4M3, ReduceOp::kSum, rows)[0], e4(16));
  EXPECT_EQ(all_reduced(numerics(Numerics::kNvls), DType::kF8E4M3, ReduceOp::kSum, rows)[0], e4(18));
  // f16 has no room for 2^15 and 2^-16 beside each other, and what it drops is dropped for good.
  const Bytes8 far{{e5(32768)}, {e5(0x1p-16F)}, {e5(-32768)}};
  EXPECT_EQ(all_reduced(numerics(Numerics::kNvls), DType::kF8E5M2, ReduceOp::kSum, far)[0], e5(0));
}

TEST(Float8, EveryNumberComesBackAndWhatLiesBetweenGoesToTheNearer) {
  const auto check = [](auto format) {
    using Format = decltype(format);
    float before = 0;
    for (unsigned bits = 0; bits < 128; ++bits) {
      const float value = f8_to_float<Format>(static_cast<std::uint8_t>(bits));
      if (!(std::fabs(value) <= Format::kLargest)) continue;
      EXPECT_EQ(float_to_f8<Format>(value), bits);
      EXPECT_EQ(float_to_f8<Format>(-value), bits | 0x80u);
      if (bits == 0) continue;
      // Halfway to the number below: to the even one of both.
      const float between = before + (value - before) / 2;
      EXPECT_EQ(float_to_f8<Format>(between), bits % 2 == 0 ? bits : bits - 1) << between;
      EXPECT_EQ(float_to_f8<Format>(std::nextafter(between, value)), bits) << between;
      EXPECT_EQ(float_to_f8<Format>(std::nextafter(between, before)), bits - 1) << between;
      before = value;
    }
    EXPECT_EQ(before, Format::kLargest);
    EXPECT_EQ(f8_to_float<Format>(float_to_f8<Format>(std::numeric_limits<float>::infinity())),
              Format::kLargest);
    EXPECT_TRUE(std::isnan(f8_to_float<Format>(float_to_f8<Format>(kNan))));
  };
  check(E4M3{});
  check(E5M2{});
  EXPECT_EQ(f8_to_float<E4M3>(1), 0x1p-9F);
  EXPECT_EQ(f8_to_float<E5M2>(1), 0x1p-16F);
  EXPECT_EQ(e4(1.0F), 0x38);
  EXPECT_EQ(e5(1.0F), 0x3C);
}

TEST(ReduceNccl, N97ANanLosesAgainstANumber) {
  for (const Numerics kind : kAsNccl) {
    const CollectiveNumerics how = numerics(kind);
    EXPECT_EQ(all_reduced(how, DType::kF32, ReduceOp::kMax, Floats{{kNan}, {1.0F}})[0], 1.0F);
    EXPECT_EQ(all_reduced(how, DType::kF32, ReduceOp::kMin, Floats{{2.0F}, {kNan}})[0], 2.0F);
    EXPECT_EQ(all_reduced(how, DType::kBF16, ReduceOp::kMax, Halves{{b(kNan)}, {b(-1)}})[0], b(-1));
    EXPECT_TRUE(std::isnan(all_reduced(how, DType::kF32, ReduceOp::kMax, Floats{{kNan}, {kNan}})[0]));
    // A sum keeps it.
    EXPECT_TRUE(std::isnan(all_reduced(how, DType::kF32, ReduceOp::kSum, Floats{{kNan}, {1.0F}})[0]));
    EXPECT_FALSE(std::signbit(all_reduced(how, DType::kF32, ReduceOp::kMax, Floats{{-0.0F}, {0.0F}})[0]));
  }
  const CollectiveNumerics ours = numerics(Numerics::kOrdered);
  EXPECT_TRUE(std::isnan(all_reduced(ours, DType::kF32, ReduceOp::kMax, Floats{{kNan}, {1.0F}})[0]));
  EXPECT_TRUE(std::isnan(all_reduced(ours, DType::kF32, ReduceOp::kMin, Floats{{1.0F}, {kNan}})[0]));
}

TEST(ReduceNccl, N98ASumOverflowsWhereAnAverageDoesNot) {
  const CollectiveNumerics ring = numerics(Numerics::kRing);
  const Halves rows{{h(40000)}, {h(40000)}};
  EXPECT_TRUE(std::isinf(f16_to_float(all_reduced(ring, DType::kF16, ReduceOp::kSum, rows)[0])));
  EXPECT_EQ(all_reduced(ring, DType::kF16, ReduceOp::kAvg, rows)[0], h(40000));
  // The ring overflows at a partial sum that the whole does not reach.
  const Halves back{{h(-40000)}, {h(40000)}, {h(40000)}};
  EXPECT_TRUE(std::isinf(f16_to_float(all_reduced(ring, DType::kF16, ReduceOp::kSum, back)[0])));
  EXPECT_EQ(all_reduced(numerics(Numerics::kNvls), DType::kF16, ReduceOp::kSum, back)[0], h(40000));
}

TEST(ReduceNccl, N99ProductsInTheElementType) {
  EXPECT_EQ(all_reduced(numerics(Numerics::kRing), DType::kBF16, ReduceOp::kProd,
                        Halves{{b(3)}, {b(5)}, {b(7)}})[0],
            b(105));
  using Longs = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(all_reduced(numerics(Numerics::kRing), DType::kI64, ReduceOp::kProd,
                        Longs{{1LL << 40}, {1LL << 40}})[0],
            0);
  EXPECT_EQ(all_reduced(numerics(Numerics::kTree), DType::kU8, ReduceOp::kProd, Bytes8{{20}, {20}})[0], 144);
}

// Where nothing rounds, every way of adding gives the same.
RC_GTEST_PROP(ReduceNccl, SmallWholeNumbersAddUpAlikeInEveryOrder, ()) {
  const auto members = *rc::gen::inRange<std::size_t>(1, 9);
  const auto count = *rc::gen::inRange<std::size_t>(1, 40);
  Floats rows(members, std::vector<float>(count));
  for (auto& row : rows) {
    for (float& value : row) value = static_cast<float>(*rc::gen::inRange(-1000, 1000));
  }
  const ReduceOp op = *rc::gen::element(ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin);
  const auto expected = all_reduced(numerics(Numerics::kOrdered), DType::kF32, op, rows);
  for (const Numerics kind : kAsNccl) {
    CollectiveNumerics how = numerics(kind, *rc::gen::inRange<std::size_t>(4, 64), *rc::gen::inRange(1, 4));
    how.ranks_per_node = *rc::gen::inRange(1, 5);
    RC_ASSERT(all_reduced(how, DType::kF32, op, rows) == expected);
    const auto root = *rc::gen::inRange<std::size_t>(0, members);
    RC_ASSERT(reduced_to(how, DType::kF32, op, root, rows) == expected);
  }
}

// A ring's result of each element is the plain sum in the order that ring_order names, rounded at every step.
RC_GTEST_PROP(ReduceNccl, TheRingFollowsItsOrder, ()) {
  const auto members = *rc::gen::inRange<std::size_t>(1, 7);
  const auto count = *rc::gen::inRange<std::size_t>(1, 50);
  Halves rows(members, std::vector<std::uint16_t>(count));
  for (auto& row : rows) {
    for (std::uint16_t& value : row) value = b(static_cast<float>(*rc::gen::inRange(-100000, 100000)) / 7.0F);
  }
  const CollectiveNumerics ring =
      numerics(Numerics::kRing, *rc::gen::inRange<std::size_t>(2, 40), *rc::gen::inRange(1, 4));
  const auto result = all_reduced(ring, DType::kBF16, ReduceOp::kSum, rows);
  for (std::size_t i = 0; i < count; ++i) {
    const auto order = ring_order(ring, i, count, 2, members);
    float total = bf16_to_float(rows[order[0]][i]);
    for (std::size_t step = 1; step < members; ++step)
      total = bf16_to_float(b(total + bf16_to_float(rows[order[step]][i])));
    RC_ASSERT(result[i] == b(total));
  }
}

}  // namespace
}  // namespace plumbline
