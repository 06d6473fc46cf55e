// The tables that the checker's passes look things up in.
#include "sim/verify/world.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "tests/sim/verify/builder.h"

namespace plumbline::verify {
namespace {

// Every rank sends to every other one, so that a member has more partners than are looked for one by one.
TEST(World, LinksOfManyPartnersAreNumberedByTheirMembers) {
  constexpr Rank kRanks = 13;
  test::Builder builder(kRanks);
  std::vector<Rank> all;
  for (Rank rank = 0; rank < kRanks; ++rank) all.push_back(rank);
  builder.family("all", {all});
  const unsigned slot = builder.slot("x");
  for (Rank rank = kRanks; rank-- > 0;) {
    for (Rank other = 0; other < kRanks; ++other) {
      if (other == rank) continue;
      builder.send(rank, other, slot);
      builder.recv(rank, other, slot);
    }
  }
  const Program program = builder.build();
  const auto linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  const CheckWorld world = make_world(*linked);
  ASSERT_EQ(world.links.size(), static_cast<std::size_t>(kRanks * (kRanks - 1)));
  std::size_t number = 0;
  for (std::uint32_t low = 0; low < kRanks; ++low) {
    for (std::uint32_t high = low + 1; high < kRanks; ++high, number += 2) {
      const Link& up = world.links[number];
      const Link& down = world.links[number + 1];
      EXPECT_EQ(std::pair(up.source, up.destination), std::pair(low, high));
      EXPECT_EQ(std::pair(down.source, down.destination), std::pair(high, low));
      EXPECT_EQ(up.distance, high - low);
      EXPECT_EQ(down.distance, kRanks - (high - low));
    }
  }
  for (std::size_t t = 0; t < world.threads(); ++t) {
    for (const Item item : program.thread_items(t)) {
      const Port& port = world.port(t, item_ref(item));
      const bool sends = port.kind == EndpointKind::kSend;
      EXPECT_EQ(port.side, sends ? 1 : -1);
      EXPECT_EQ(world.links[port.link].source, sends ? t : port.peer);
      EXPECT_EQ(world.links[port.link].destination, sends ? port.peer : t);
    }
  }
}

// Uses of a pair need not follow each other, and a rank may have a message for itself.
TEST(World, PairsThatAreUsedInTurnHaveOneNumber) {
  test::Builder builder(3);
  builder.family("all", {{0, 1, 2}});
  const unsigned x = builder.slot("x"), y = builder.slot("y");
  for (const unsigned slot : {x, y}) {
    for (const Rank other : {2, 1, 0}) {
      builder.send(0, other, slot);
      builder.recv(other, 0, slot);
    }
  }
  const Program program = builder.build();
  const auto linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  EXPECT_TRUE(linked->own_messages);
  const CheckWorld world = make_world(*linked);
  ASSERT_EQ(world.links.size(), 6u);
  for (std::size_t t = 0; t < world.threads(); ++t) {
    for (const Item item : program.thread_items(t)) {
      const Port& port = world.port(t, item_ref(item));
      EXPECT_EQ(port.link, 2 * (t == 0 ? port.peer : t)) << "rank " << t;
    }
  }
  EXPECT_EQ(world.links[0].distance, 0u);
  EXPECT_FALSE(world.links[0].mirrored);
}

// Messages of whole slots, of parts and of other slots: numbers are equal where contents are.
TEST(World, KeysAreEqualWhereContentsAre) {
  test::Builder builder(2);
  builder.family("both", {{0, 1}});
  const unsigned x = builder.slot("x", 64), y = builder.slot("y", 64);
  const unsigned whole = builder.endpoint(EndpointKind::kSend, 0, x, 1);
  const unsigned part = builder.endpoint(EndpointKind::kSend, 0, x, 1, false, 32);
  const unsigned other = builder.endpoint(EndpointKind::kSend, 0, y, 1);
  for (const unsigned row : {whole, part, other}) builder.op(0, row);
  const unsigned into = builder.endpoint(EndpointKind::kRecv, 0, x, 0);
  const unsigned into_part = builder.endpoint(EndpointKind::kRecv, 0, x, 0, false, 32);
  for (const unsigned row : {into, into_part}) builder.op(1, row);
  const Program program = builder.build();
  const auto linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  const CheckWorld world = make_world(*linked);
  EXPECT_EQ(world.port(0, whole).key, world.port(1, into).key);
  EXPECT_EQ(world.port(0, part).key, world.port(1, into_part).key);
  EXPECT_EQ((std::set{world.port(0, whole).key, world.port(0, part).key, world.port(0, other).key}).size(),
            3u);
}

TEST(World, KeysOfCollectivesTellTheirCallsApart) {
  test::Builder builder(2);
  builder.family("both", {{0, 1}});
  const unsigned x = builder.slot("x", 64), y = builder.slot("y", 64);
  const unsigned z = builder.slot("z", 64, SlotKind::kOther);
  const unsigned sum = builder.endpoint(EndpointKind::kAllReduce, 0, x, -1);
  const unsigned same = builder.endpoint(EndpointKind::kAllReduce, 0, y, -1);
  const std::vector<unsigned> others{
      builder.endpoint(EndpointKind::kAllReduce, 0, x, -1, false, -1, ReduceOp::kMax),
      builder.endpoint(EndpointKind::kAllReduce, 0, x, -1, false, 32),
      builder.endpoint(EndpointKind::kAllReduce, 0, z, -1),
      builder.endpoint(EndpointKind::kReduceScatter, 0, x, -1)};
  for (const unsigned row : {sum, same}) builder.op(0, row);
  for (const unsigned row : others) builder.op(0, row);
  builder.op(1, sum);
  const Program program = builder.build();
  const auto linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  const CheckWorld world = make_world(*linked);
  EXPECT_EQ(world.port(0, sum).key, world.port(1, sum).key);
  EXPECT_EQ(world.port(0, sum).key, world.port(0, same).key);
  std::set<std::uint32_t> keys{world.port(0, sum).key};
  for (const unsigned row : others) keys.insert(world.port(0, row).key);
  EXPECT_EQ(keys.size(), 1 + others.size());
}

TEST(World, RangesAreNumberedByTheirFirstThreads) {
  test::Builder builder(6);
  const unsigned slot = builder.slot("x", 64, SlotKind::kOther, true, false);
  const unsigned kernel = builder.kernel({}, {}, {static_cast<std::uint16_t>(slot)});
  for (Rank rank = 0; rank < 3; ++rank) builder.launch(rank, kernel, rank);
  Program program = builder.build();
  const std::vector<std::size_t> same_as{2, 0, 2, 1, 0, 1};
  const std::vector<Thread> own = program.threads;
  for (std::size_t t = 0; t < same_as.size(); ++t) {
    program.threads[t].begin = own[same_as[t]].begin;
    program.threads[t].end = own[same_as[t]].end;
  }
  const auto linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  const CheckWorld world = make_world(*linked);
  EXPECT_EQ(world.ranges, 3u);
  EXPECT_EQ(std::vector<std::uint32_t>(world.range_of.begin(), world.range_of.end()),
            (std::vector<std::uint32_t>{0, 1, 0, 2, 1, 2}));
}

}  // namespace
}  // namespace plumbline::verify
