#include "engine/schedule/call_diff.h"

#include <gtest/gtest.h>

#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

std::string text(const CallDiff& diff) {
  std::string out;
  for (const CallMove& move : diff.moves) {
    out += move.call + ":" + std::to_string(static_cast<int>(move.change)) + " " +
           std::to_string(move.from_rank) + "." + std::to_string(move.from) + ">" +
           std::to_string(move.to_rank) + "." + std::to_string(move.to) + "\n";
  }
  return out;
}

TEST(CallDiff, EqualRowsHaveNoMoves) {
  const CallRows rows = {{"a", "b"}, {"c"}};
  EXPECT_TRUE(diff_calls(rows, rows).equal());
  EXPECT_EQ(diff_calls(rows, rows).before, 3U);
  EXPECT_TRUE(diff_calls({}, {}).equal());
}

TEST(CallDiff, FewestMoves) {
  // One call moved over many is one move, not many.
  EXPECT_EQ(text(diff_calls({{"a", "b", "c", "d", "e"}}, {{"b", "c", "d", "a", "e"}})), "a:0 0.0>0.3\n");
  EXPECT_EQ(text(diff_calls({{"a", "b", "c"}}, {{"c", "a", "b"}})), "c:0 0.2>0.0\n");
}

TEST(CallDiff, RemovedAddedAndOtherRank) {
  EXPECT_EQ(text(diff_calls({{"a", "b"}, {"c"}}, {{"a", "d"}, {"c", "b"}})), "b:1 0.1>1.1\nd:3 -1.-1>0.1\n");
  EXPECT_EQ(text(diff_calls({{"a", "b"}}, {{"a"}})), "b:2 0.1>-1.-1\n");
  EXPECT_EQ(text(diff_calls({{"a"}}, {{"a"}, {"b"}})), "b:3 -1.-1>1.0\n");
}

TEST(CallDiff, EqualWordsAreToldApartByTheirTurn) {
  EXPECT_EQ(text(diff_calls({{"w", "a", "w"}}, {{"w", "a"}})), "w:2 0.2>-1.-1\n");
  EXPECT_EQ(diff_calls({{"a", "b"}}, {{"b", "a"}}).moves[0].to_after, "b");
}

TEST(CallDiff, DetailsOfCallsInTheirPlace) {
  const CallRows before = {{"a", "b"}}, after = {{"a", "b"}};
  const CallDiff diff = diff_calls(before, after, {{"a alone", "b"}}, {{"a grouped", "b"}});
  ASSERT_EQ(diff.moves.size(), 1U);
  EXPECT_EQ(diff.moves[0].change, CallChange::kChanged);
  EXPECT_EQ(diff.moves[0].from_after, "a alone");
  EXPECT_EQ(diff.moves[0].to_after, "a grouped");
  EXPECT_TRUE(diff_calls(before, after, before, before).equal());
}

// A shuffle of one row, undone by the moves: those that stay keep their order.
TEST(CallDiff, WhatStaysIsInOrder) {
  const Schedule a = test::generate("interleaved", {4, 2, 8}).value();
  const Schedule b = test::generate("torch-looped-bfs", {4, 2, 8}).value();
  const CallRows before = call_rows(a);
  const CallRows after = call_rows(b);
  const CallDiff diff = diff_calls(before, after);
  EXPECT_FALSE(diff.equal());
  for (std::size_t rank = 0; rank < before.size(); ++rank) {
    std::vector<std::string> left[2] = {before[rank], after[rank]};
    for (const CallMove& move : diff.moves) {
      ASSERT_EQ(move.change, CallChange::kMoved);
      if (move.from_rank != static_cast<int>(rank)) continue;
      for (auto& row : left) std::erase(row, move.call);
    }
    EXPECT_EQ(left[0], left[1]) << rank;
  }
}

}  // namespace
}  // namespace plumbline
