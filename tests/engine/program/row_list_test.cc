#include "engine/program/row_list.h"

#include <utility>

#include <gtest/gtest.h>

namespace plumbline {
namespace {

std::vector<std::uint16_t> counted(std::size_t size) {
  std::vector<std::uint16_t> rows;
  for (std::size_t i = 0; i < size; ++i) rows.push_back(static_cast<std::uint16_t>(i * 7));
  return rows;
}
std::vector<std::uint16_t> rows_of(const RowList& list) { return {list.begin(), list.end()}; }

// Below, at and above what lies in the list itself, and where room is doubled.
constexpr std::size_t kSizes[] = {0, 1, 5, 6, 7, 8, 9, 16, 17, 100};

TEST(RowList, HoldsWhatItIsGiven) {
  for (const std::size_t size : kSizes) {
    const std::vector<std::uint16_t> rows = counted(size);
    RowList pushed;
    for (const std::uint16_t row : rows) pushed.push_back(row);
    EXPECT_EQ(rows_of(pushed), rows);
    EXPECT_EQ(pushed.size(), size);
    EXPECT_EQ(pushed.empty(), size == 0);
    EXPECT_TRUE(pushed == RowList(rows));
    if (size > 0) {
      EXPECT_EQ(pushed[size - 1], rows.back());
    }
  }
  EXPECT_EQ(rows_of({4, 2}), (std::vector<std::uint16_t>{4, 2}));
  EXPECT_FALSE(RowList({4, 2}) == RowList({4, 3}));
}

TEST(RowList, CopiesAndMovesStandAlone) {
  for (const std::size_t size : kSizes) {
    for (const std::size_t before : kSizes) {
      RowList from(counted(size)), copied(counted(before)), moved(counted(before));
      copied = from;
      RowList constructed(from);
      moved = std::move(from);
      const RowList taken(std::move(constructed));
      EXPECT_TRUE(from.empty() && constructed.empty());  // NOLINT: what is left is an empty list
      from.push_back(1);
      copied.push_back(2);
      EXPECT_EQ(rows_of(moved), counted(size));
      EXPECT_EQ(rows_of(taken), counted(size));
      EXPECT_EQ(copied.size(), size + 1);
      EXPECT_EQ(rows_of(from), (std::vector<std::uint16_t>{1}));
    }
  }
  RowList self(counted(9));
  self = *&self;
  EXPECT_EQ(rows_of(self), counted(9));
}

}  // namespace
}  // namespace plumbline
