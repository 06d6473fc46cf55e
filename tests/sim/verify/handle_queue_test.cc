// What handle queues keep, and that they keep no more.
#include "sim/verify/handle_queue.h"

#include <algorithm>
#include <deque>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plumbline::verify {
namespace {

RC_GTEST_PROP(HandleQueue, IsFirstInFirstOutAndTakesWhatIsOutstanding, ()) {
  const auto width = static_cast<std::size_t>(*rc::gen::inRange(1, 5));
  HandleQueue<int> queue;
  std::deque<int> rows;
  std::size_t most = 1;
  for (const bool push : *rc::gen::container<std::vector<bool>>(200, rc::gen::arbitrary<bool>())) {
    if (push) {
      const std::vector<int> row(width, static_cast<int>(rows.size()) + (rows.empty() ? 0 : rows.back()));
      queue.push(row.data(), width);
      rows.push_back(row[0]);
      most = std::max(most, rows.size());
      continue;
    }
    const int* row = queue.pop(width);
    RC_ASSERT((row == nullptr) == rows.empty());
    if (row == nullptr) continue;
    RC_ASSERT(row[0] == rows.front() && row[width - 1] == rows.front());
    rows.pop_front();
  }
  RC_ASSERT(queue.room() <= 4 * (most + 1) * width);
}

TEST(HandleQueue, KeepsTheRoomOfAFewThroughThousands) {
  HandleQueue<int> queue;
  int next = 0;
  for (; next < 8; ++next) queue.push(&next, 1);
  for (int taken = 0; taken < 100000; ++taken, ++next) {
    const int* row = queue.pop(1);
    ASSERT_NE(row, nullptr);
    ASSERT_EQ(*row, taken);
    queue.push(&next, 1);
  }
  EXPECT_LE(queue.room(), 64U);
}

}  // namespace
}  // namespace plumbline::verify
