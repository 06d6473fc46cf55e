// Bidirectional schedules go through CSV and come back with their pipelines.
#include <gtest/gtest.h>

#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

Schedule read(const std::string& text) { return parse_schedule_csv(text, "rows").value(); }

TEST(CsvPipelines, RoundTrip) {
  int read_back = 0;
  for (const char* name : {"dualpipe", "chimera", "chimera-2-pairs"}) {
    for (int p = 2; p <= 8; p += 2) {
      for (int m = p / 2; m <= 3 * p; ++m) {
        const Result<Schedule> made = test::generate(name, {p, 1, m});
        if (!made || made->pipelines() == 1) continue;
        Schedule back = read(print_schedule_csv(*made));
        EXPECT_EQ(back.pipelines(), made->pipelines()) << name << p << m;
        EXPECT_EQ(test::findings_text(validate_schedule(back)), "") << name << p << m;
        EXPECT_EQ(evaluate(back, {})->makespan, evaluate(*made, {})->makespan);
        back.name = made->name;
        EXPECT_EQ(print_schedule_csv(back), print_schedule_csv(*made));
        for (int s = 0; s < p; ++s) {
          for (int k = 0; k < m; ++k) EXPECT_EQ(back.rank_of(s, k), made->rank_of(s, k)) << name << p << m;
        }
        ++read_back;
      }
    }
  }
  EXPECT_GT(read_back, 15);
}

TEST(CsvPipelines, AMisplacedActionIsNoPipeline) {
  // One microbatch of stage 1 on rank 0: placements of one and of three microbatches.
  const Schedule one_off = read("0F0,0F1,0F2,1F3,0F3\n1F0,1F1,1F2\n");
  EXPECT_EQ(one_off.pipelines(), 1);
  EXPECT_EQ(validate_schedule(one_off).front().rule, "placement");
  // Both stages of half of the microbatches on one rank: not spread over the ranks.
  const Schedule uneven = read("0F0,0F1,1F1\n1F0\n");
  EXPECT_EQ(uneven.pipelines(), 1);
  EXPECT_EQ(validate_schedule(uneven).front().rule, "placement");
  // A stage of one microbatch on two ranks.
  const Schedule twice = read("0F0,1F1,0F1\n1F0,0F1,1F1\n");
  EXPECT_EQ(twice.pipelines(), 1);
}

TEST(CsvPipelines, FaultsOfBidirectionalRowsAreFound) {
  const Schedule good = test::generate("chimera", {4, 1, 4}).value();
  test::Rows rows = test::rows_of(good);
  std::swap(rows[0][0], rows[0][7]);  // a forward behind its backward
  const std::vector<ScheduleFinding> findings = validate_schedule(test::with_rows(good, rows));
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings.front().rule, "order") << findings.front().why;
  rows = test::rows_of(good);
  rows[1].push_back(rows[0].front());
  rows[0].erase(rows[0].begin());
  const std::vector<ScheduleFinding> moved = validate_schedule(test::with_rows(good, rows));
  ASSERT_FALSE(moved.empty());
  EXPECT_EQ(moved.front().rule, "placement");
  EXPECT_EQ(moved.front().why, "0F0 is on rank 1, but rank 0 holds stage 0 for this microbatch");
}

}  // namespace
}  // namespace plumbline
