#include "engine/optim/collective.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/floats.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

// Runs `member` on a thread for every member of the group.
void on_all(const std::vector<std::shared_ptr<Collective>>& group,
            const std::function<void(Collective&)>& member) {
  std::vector<std::thread> threads;
  for (const auto& one : group) threads.emplace_back([&] { member(*one); });
  for (std::thread& thread : threads) thread.join();
}

std::byte* bytes(std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); }

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Collective, AloneChangesNothing) {
  const auto group = alone();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  std::vector<double> values{1.5, -2.0};
  EXPECT_TRUE(group->sum(std::span<double>(values)).has_value());
  std::vector<float> floats{3.0f};
  EXPECT_TRUE(group->max(floats).has_value());
  EXPECT_TRUE(group->reduce_scatter(DType::kF32, ReduceOp::kSum, bytes(floats), 1).has_value());
  EXPECT_TRUE(group->all_gather(DType::kF32, bytes(floats), 1).has_value());
  EXPECT_EQ(values, (std::vector<double>{1.5, -2.0}));
  EXPECT_EQ(floats[0], 3.0f);
}

TEST(Collective, EveryKindOverThreeThreads) {
  const auto group = thread_group(3);
  on_all(group, [](Collective& self) {
    const int rank = self.rank();
    ASSERT_EQ(self.size(), 3);
    std::vector<float> most{static_cast<float>(rank), static_cast<float>(-rank)};
    ASSERT_TRUE(self.max(most).has_value());
    EXPECT_EQ(most, (std::vector<float>{2.0f, 0.0f}));

    std::vector<std::int64_t> counts{rank, 10};
    ASSERT_TRUE(self.sum(std::span<std::int64_t>(counts)).has_value());
    EXPECT_EQ(counts, (std::vector<std::int64_t>{3, 30}));

    // Element e of rank r is 100 r + e; part 1 keeps the sum of elements 2 and 3.
    std::vector<float> parts(6);
    for (int e = 0; e < 6; ++e) parts[static_cast<std::size_t>(e)] = static_cast<float>(100 * rank + e);
    std::vector<float> expected = parts;
    for (int e = 2 * rank; e < 2 * rank + 2; ++e) {
      expected[static_cast<std::size_t>(e)] = static_cast<float>(300 + 3 * e);
    }
    ASSERT_TRUE(self.reduce_scatter(DType::kF32, ReduceOp::kSum, bytes(parts), 2).has_value());
    EXPECT_EQ(parts, expected);

    ASSERT_TRUE(self.all_gather(DType::kF32, bytes(parts), 2).has_value());
    EXPECT_EQ(parts, (std::vector<float>{300, 303, 306, 309, 312, 315}));
    ASSERT_TRUE(self.all_gather(DType::kF32, nullptr, 0).has_value());
  });
}

TEST(Collective, NaNSurvivesAMaximum) {
  const auto group = thread_group(2);
  on_all(group, [](Collective& self) {
    std::vector<float> found{self.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0f};
    ASSERT_TRUE(self.max(found).has_value());
    EXPECT_TRUE(std::isnan(found[0]));
  });
}

// Whoever comes last, sums are taken in member order: the bits of a plain loop.
TEST(Collective, SumsAreTheSameBitsInEveryRun) {
  test::check_cases(300, [] {
    const auto members = *rc::gen::inRange<std::size_t>(1, 6);
    const auto count = *rc::gen::inRange<std::size_t>(0, 20);
    const auto inputs = *rc::gen::container<std::vector<std::vector<float>>>(
        members, rc::gen::container<std::vector<float>>(count, test::finite_float()));
    std::vector<float> expected = inputs[0];
    for (std::size_t m = 1; m < members; ++m) {
      for (std::size_t i = 0; i < count; ++i) expected[i] += inputs[m][i];
    }
    auto values = inputs;
    std::vector<int> ok(members);
    on_all(thread_group(static_cast<int>(members)), [&](Collective& self) {
      const auto rank = static_cast<std::size_t>(self.rank());
      ok[rank] = self.all_reduce(DType::kF32, ReduceOp::kSum, bytes(values[rank]), count).has_value();
    });
    for (std::size_t m = 0; m < members; ++m) {
      RC_ASSERT(ok[m] == 1);
      RC_ASSERT(same_bits(values[m], expected));
    }
  });
}

TEST(Collective, ManyCallsInARow) {
  on_all(thread_group(4), [](Collective& self) {
    std::vector<std::int64_t> value{1};
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(self.sum(std::span<std::int64_t>(value)).has_value());
    EXPECT_EQ(value[0], std::int64_t{1} << 40);
  });
}

TEST(Collective, MissingMembersAreNamed) {
  const auto group = thread_group(4, 0.5);
  std::mutex mutex;
  std::vector<std::string> errors;
  on_all({group[0], group[2]}, [&](Collective& self) {
    std::vector<float> value{1.0f};
    const Status status = self.max(value);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
    const std::lock_guard lock(mutex);
    errors.push_back(status.error().message);
  });
  ASSERT_EQ(errors.size(), 2u);
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank(s) 1, 3 did"), std::string::npos) << error;
  // Too late: the others have gone, and their memory with them.
  std::vector<float> value{1.0f};
  const Status late = group[1]->max(value);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().message, errors[0]);
}

TEST(Collective, DifferentCallsAreRefused) {
  on_all(thread_group(2), [](Collective& self) {
    std::vector<float> values{1.0f, 2.0f};
    const Status status =
        self.all_reduce(DType::kF32, ReduceOp::kSum, bytes(values), self.rank() == 0 ? 2 : 1);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kState);
    EXPECT_NE(
        status.error().message.find("rank 0 all-reduce (sum) of 2 f32, rank 1 all-reduce (sum) of 1 f32"),
        std::string::npos)
        << status.error().message;
    EXPECT_EQ(values, (std::vector<float>{1.0f, 2.0f}));
  });
}

}  // namespace
}  // namespace plumbline
