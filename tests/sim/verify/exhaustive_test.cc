// Small worlds, all of them: every pair of host programs of two ranks with at most three operations each,
// where an operation is a send or a receive of one of two tensors over one of two communicators, alone or
// chained to the one before it in a group. Programs that differ only in the names of tensors or communicators
// count once.
#include <cstdio>
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "sim/simulator.h"
#include "tests/sim/verify/builder.h"

namespace plumbline::test {
namespace {

constexpr int kMost = 3;
constexpr int kKinds = 8;  // direction, tensor, communicator: a bit each

struct Side {
  int length = 0;
  int ops[kMost] = {};
  unsigned chained = 0;  // bit i: operation i is in one group with operation i - 1
};

std::vector<Side> all_sides() {
  std::vector<Side> sides{Side{}};
  for (int length = 1; length <= kMost; ++length) {
    int codes = 1;
    for (int i = 0; i < length; ++i) codes *= kKinds;
    for (int code = 0; code < codes; ++code) {
      for (unsigned chained = 0; chained < (1u << (length - 1)); ++chained) {
        Side side;
        side.length = length;
        side.chained = chained << 1;
        for (int i = 0, rest = code; i < length; ++i, rest /= kKinds) side.ops[i] = rest % kKinds;
        sides.push_back(side);
      }
    }
  }
  return sides;
}

// The first operation that names a tensor uses tensor 0, and likewise for communicators.
bool is_canonical(const Side& a, const Side& b) {
  for (const int shift : {1, 2}) {
    for (const Side* side : {&a, &b}) {
      if (side->length == 0) continue;
      if ((side->ops[0] >> shift & 1) != 0) return false;
      break;
    }
  }
  return true;
}

class World {
 public:
  World() : b_(2, 2) {
    b_.program().fragment = true;
    slot_ = b_.slot("x");
    for (const char* name : {"c0", "c1"}) b_.family(name, {{0, 1}});
    for (unsigned family = 0; family < 2; ++family) {
      for (const Rank peer : {1, 0}) {
        endpoints_[family][peer][0] = b_.endpoint(EndpointKind::kSend, family, slot_, peer);
        endpoints_[family][peer][1] = b_.endpoint(EndpointKind::kRecv, family, slot_, peer);
      }
    }
  }

  const Program& make(const Side& a, const Side& b) {
    Program& program = b_.program();
    program.items.clear();
    program.threads.clear();
    add(a, 0);
    add(b, 1);
    return program;
  }

 private:
  void add(const Side& side, Rank rank) {
    Program& program = b_.program();
    const auto begin = static_cast<std::uint32_t>(program.items.size());
    for (int i = 0; i < side.length; ++i) {
      const auto family = static_cast<unsigned>(side.ops[i] >> 2 & 1);
      const bool more = i + 1 < side.length && (side.chained >> (i + 1) & 1) != 0;
      program.items.push_back(make_item(ItemOp::kOp, side.ops[i] >> 1 & 1, more ? unsigned{kMore} : 0u,
                                        endpoints_[family][1 - rank][side.ops[i] & 1], 1 + family));
    }
    program.threads.push_back({rank, begin, static_cast<std::uint32_t>(program.items.size())});
  }

  Builder b_;
  unsigned slot_;
  unsigned endpoints_[2][2][2] = {};  // family, peer, receives
};

// How many of a rank's operations are of each (communicator, direction); both ranks' must mirror each other
// for a program to be worth more than "unmatched".
int profile(const Side& side, bool mirrored) {
  int out = 0;
  for (int i = 0; i < side.length; ++i) {
    const int receives = (side.ops[i] & 1) ^ (mirrored ? 1 : 0);
    out += 1 << (2 * ((side.ops[i] >> 2 & 1) * 2 + receives));
  }
  return out;
}

TEST(CheckExhaustive, TwoRanksThreeOperations) {
  const std::vector<Side> sides = all_sides();
  std::map<int, std::vector<const Side*>> by_profile;
  for (const Side& side : sides) by_profile[profile(side, true)].push_back(&side);
  World world;
  std::int64_t programs = 0, certified = 0, by_default = 0;
  for (const Side& a : sides) {
    // Counts that do not mirror are unmatched whatever the order; a sample of them is enough.
    for (const Side* b : by_profile[profile(a, false)]) {
      if (!is_canonical(a, *b)) continue;
      const Program& program = world.make(a, *b);
      const auto linked = link_program(program);
      ASSERT_TRUE(linked.has_value());
      CheckOptions options;
      options.makespan = false;
      const auto verdict = check_program(*linked, options);
      ASSERT_TRUE(verdict.has_value());
      const bool strict = simulate(*linked, certification_model(), options.time)->completes;
      ASSERT_EQ(verdict->modes[0].completes, strict) << programs << "\n" << words(*verdict);
      const bool free = simulate(*linked, default_model(), options.time)->completes;
      ASSERT_EQ(verdict->modes[1].completes, free) << programs << "\n" << words(*verdict);
      ASSERT_TRUE(free || !strict);
      ++programs;
      certified += strict ? 1 : 0;
      by_default += free ? 1 : 0;
    }
  }
  std::printf("[ programs ] %lld up to renaming, %lld complete in the certification mode, %lld by default\n",
              static_cast<long long>(programs), static_cast<long long>(certified),
              static_cast<long long>(by_default));
  EXPECT_GT(programs, 10000);
  EXPECT_GT(certified, 100);
  EXPECT_GT(by_default, certified);
}

// Programs whose counts do not mirror each other: some operation finds no partner.
TEST(CheckExhaustive, UnmatchedCountsAreFoundAlways) {
  const std::vector<Side> sides = all_sides();
  World world;
  std::int64_t programs = 0;
  for (std::size_t i = 0; i < sides.size(); i += 7) {
    for (std::size_t j = i % 11; j < sides.size(); j += 11) {
      if (profile(sides[i], false) == profile(sides[j], true)) continue;
      const auto linked = link_program(world.make(sides[i], sides[j]));
      ASSERT_TRUE(linked.has_value());
      CheckOptions options;
      options.makespan = false;
      const auto verdict = check_program(*linked, options);
      ASSERT_TRUE(verdict.has_value());
      ASSERT_GT(count(verdict->findings, FindingKind::kUnmatched), 0);
      ASSERT_FALSE(verdict->modes[0].completes);
      ++programs;
    }
  }
  EXPECT_GT(programs, 1000);
}

}  // namespace
}  // namespace plumbline::test
