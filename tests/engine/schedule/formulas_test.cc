// The bubble and memory formulas that generators print, against an independent evaluation of what they
// generate.
#include <gtest/gtest.h>

#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

const std::vector<test::Costs> kCosts = {{1, 1}, {1, 2}, {3, 4}, {5, 2}};

// Makespan beyond one rank's own work.
int bubble(const Schedule& schedule, const test::Costs& costs) {
  const int work = schedule.stages / schedule.ranks * schedule.microbatches *
                   (costs.forward + (schedule.forward_only ? 0 : costs.backward));
  return test::makespan(schedule, costs) - work;
}

std::string printed_bubble(const char* name) { return (*find_generator(name))->bubble; }
std::string printed_memory(const char* name) { return (*find_generator(name))->memory; }

TEST(Formulas, GPipe) {
  EXPECT_EQ(printed_bubble("gpipe"), "makespan: (P-1)(F+B)");
  EXPECT_EQ(printed_memory("gpipe"), "M on every rank");
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 12; ++m) {
      const Schedule schedule = test::generate("gpipe", {p, 1, m}).value();
      for (const test::Costs& c : kCosts) EXPECT_EQ(bubble(schedule, c), (p - 1) * (c.forward + c.backward));
      for (int r = 0; r < p; ++r) EXPECT_EQ(test::peak_live(schedule, r), m);
    }
  }
}

TEST(Formulas, OneForwardOneBackward) {
  EXPECT_EQ(printed_bubble("1f1b"), "makespan: (P-1)(F+B)");
  EXPECT_EQ(printed_memory("1f1b"), "min(M, P-r) on rank r");
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 12; ++m) {
      const Schedule schedule = test::generate("1f1b", {p, 1, m}).value();
      for (const test::Costs& c : kCosts) EXPECT_EQ(bubble(schedule, c), (p - 1) * (c.forward + c.backward));
      for (int r = 0; r < p; ++r) EXPECT_EQ(test::peak_live(schedule, r), std::min(m, p - r));
    }
  }
}

TEST(Formulas, Interleaved) {
  EXPECT_EQ(printed_bubble("interleaved"), "makespan: (P-1)(F+B), F and B of one chunk");
  EXPECT_EQ(printed_memory("interleaved"), "min(M V, 2(P-r-1) + (V-1)G + 1) chunks on rank r");
  int checked = 0;
  for (int p = 1; p <= 5; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int g = p; g <= p + 3; ++g) {
        for (int m = g; m <= 3 * p + 4; ++m) {
          const Result<Schedule> schedule = test::generate("interleaved", {p, v, m, g});
          if (!schedule) continue;
          ++checked;
          for (const test::Costs& c : kCosts) {
            EXPECT_EQ(bubble(*schedule, c), (p - 1) * (c.forward + c.backward))
                << p << v << " " << m << " " << g;
          }
          for (int r = 0; r < p; ++r) {
            EXPECT_EQ(test::peak_live(*schedule, r), std::min(m * v, 2 * (p - r - 1) + (v - 1) * g + 1));
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 300);
}

TEST(Formulas, Interleaved2022) {
  EXPECT_EQ(printed_bubble("interleaved-2022"), "makespan: (P-1)(F+B), F and B of one chunk");
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int m = p; m <= 3 * p; m += p) {
        const Schedule schedule = test::generate("interleaved-2022", {p, v, m}).value();
        for (const test::Costs& c : kCosts)
          EXPECT_EQ(bubble(schedule, c), (p - 1) * (c.forward + c.backward));
        for (int r = 0; r < p; ++r) {
          const int limit = m == p ? m * v : 2 * (p - r - 1) + (v - 1) * p + 1;
          EXPECT_EQ(test::peak_live(schedule, r), std::min(m * v, limit));
        }
      }
    }
  }
}

TEST(Formulas, ForwardOnly) {
  EXPECT_EQ(printed_bubble("forward-only"), "makespan: (P-1)F, F of one chunk");
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 3; ++v) {
      for (int m = 1; m <= 12; ++m) {
        const Result<Schedule> schedule = test::generate("forward-only", {p, v, m});
        if (!schedule) continue;
        for (const test::Costs& c : kCosts) EXPECT_EQ(bubble(*schedule, c), (p - 1) * c.forward);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
