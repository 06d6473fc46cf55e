// Linking by hand-made rows; tests of lowering and text link every Program they make.
#include "engine/program/link.h"

#include <gtest/gtest.h>

#include "tests/sim/verify/builder.h"

namespace plumbline {
namespace {

TEST(Link, WindowsReachFromTheFirstRowUsedToTheLast) {
  test::Builder builder(3);
  builder.family("all", {{2, 0, 1}});
  const unsigned x = builder.slot("x"), y = builder.slot("y"), z = builder.slot("z");
  builder.send(0, 1, x);  // row 0
  builder.send(0, 2, y);  // row 1
  builder.send(1, 2, z);  // row 2
  builder.op(2, 1);       // rows 1 and 0, in this order; rank 2 sends y to itself and x to rank 1
  builder.op(2, 0);
  builder.program().endpoints[1].peer = 0;
  const Program program = builder.build();
  const auto linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  EXPECT_EQ(linked->windows[0].first, 0u);
  EXPECT_EQ(linked->windows[0].count, 2u);
  EXPECT_EQ(linked->windows[1].first, 2u);
  EXPECT_EQ(linked->windows[1].count, 1u);
  EXPECT_EQ(linked->windows[2].first, 0u);
  const LinkedEndpoint& row = linked->at(2, 0);
  EXPECT_EQ(row.communicator, 0);
  EXPECT_EQ(row.position, 0);  // of rank 2 among 2, 0, 1
  EXPECT_EQ(row.peer, 1);
  EXPECT_EQ(row.peer_position, 2);
}

TEST(Link, ProgramsWithoutEndpointsHaveEmptyWindows) {
  test::Builder builder(2);
  const unsigned slot = builder.slot("x", 64, SlotKind::kOther);
  const unsigned kernel = builder.kernel({}, {}, {static_cast<std::uint16_t>(slot)});
  builder.launch(0, kernel);
  const Program program = builder.build();
  const auto linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  EXPECT_EQ(linked->windows[0].count, 0u);
  EXPECT_TRUE(linked->endpoints.empty());
}

// Rows are resolved in the order of the table, errors told in the order of the items.
TEST(Link, OfTwoRowsWithoutACommunicatorTheFirstUsedIsTold) {
  test::Builder builder(4);
  builder.family("some", {{0, 1}, {2, 3}});
  const unsigned x = builder.slot("x"), y = builder.slot("y");
  const unsigned to_two = builder.endpoint(EndpointKind::kSend, 0, x, 2);
  const unsigned to_three = builder.endpoint(EndpointKind::kSend, 0, y, 3);
  builder.op(0, to_three);
  builder.op(0, to_two);
  const Program program = builder.build();
  const auto linked = link_program(program);
  ASSERT_FALSE(linked);
  EXPECT_NE(linked.error().text().find(program.endpoints[to_three].name + " but no communicator"),
            std::string::npos)
      << linked.error().text();
}

}  // namespace
}  // namespace plumbline
