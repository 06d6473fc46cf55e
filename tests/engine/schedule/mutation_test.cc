// Small worlds, exhaustively: every single fault of a small schedule is found, and nothing is found where
// there is none. Whether a mutant is faulty is decided by reference.h.
#include <set>

#include <gtest/gtest.h>

#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

using test::Rows;

std::vector<Schedule> small_schedules() {
  std::vector<Schedule> out;
  const auto add = [&](const char* name, const GeneratorArgs& args) {
    out.push_back(test::generate(name, args).value());
  };
  add("gpipe", {1, 1, 2});
  add("gpipe", {3, 1, 3});
  add("gpipe", {2, 1, 2, 0, true});
  add("1f1b", {2, 1, 3});
  add("1f1b", {3, 1, 3});
  add("interleaved", {2, 2, 4});
  add("interleaved", {2, 2, 3, 3});
  add("interleaved-2022", {2, 2, 2});
  for (const char* csv : {"0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1W0,1I1,1W1\n",
                          "0F0,3F0,0F1,3I0,3F1,3W0,3B1,0B0,0I1,0W1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1I1,1W1\n"}) {
    out.push_back(parse_schedule_csv(csv, "split").value());
  }
  return out;
}

struct Tally {
  int valid = 0;
  int faulty = 0;
};

void compare(const Schedule& mutant, Tally* tally) {
  const std::vector<ScheduleFinding> findings = validate_schedule(mutant);
  const bool is_valid = test::valid(mutant);
  ASSERT_EQ(findings.empty(), is_valid) << print_schedule_csv(mutant) << test::findings_text(findings);
  ++(is_valid ? tally->valid : tally->faulty);
}

std::set<std::string> rules_of(const Schedule& schedule) {
  std::set<std::string> rules;
  for (const ScheduleFinding& finding : validate_schedule(schedule)) rules.insert(finding.rule);
  return rules;
}

// Calls visit(row, position) for every action.
template <typename Visit>
void for_each_place(const Rows& rows, Visit visit) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < rows[r].size(); ++i) visit(r, i);
  }
}

std::vector<Action>::iterator at(std::vector<Action>& row, std::size_t i) {
  return row.begin() + static_cast<std::ptrdiff_t>(i);
}

TEST(Mutation, TheSchedulesThemselvesAreValid) {
  for (const Schedule& schedule : small_schedules()) {
    EXPECT_TRUE(test::valid(schedule)) << print_schedule_csv(schedule);
    EXPECT_EQ(test::findings_text(validate_schedule(schedule)), "") << print_schedule_csv(schedule);
  }
}

TEST(Mutation, EveryDropIsMissingAndLegalInAFragment) {
  for (const Schedule& schedule : small_schedules()) {
    const Rows rows = test::rows_of(schedule);
    for_each_place(rows, [&](std::size_t r, std::size_t i) {
      Rows mutant = rows;
      mutant[r].erase(at(mutant[r], i));
      const Schedule dropped = test::with_rows(schedule, mutant);
      EXPECT_EQ(rules_of(dropped), std::set<std::string>{"missing"}) << print_schedule_csv(dropped);
      EXPECT_TRUE(validate_schedule(dropped, true).empty());
    });
  }
}

TEST(Mutation, EveryDuplicateIsFoundWhereverItStands) {
  for (const Schedule& schedule : small_schedules()) {
    const Rows rows = test::rows_of(schedule);
    for_each_place(rows, [&](std::size_t r, std::size_t i) {
      for (std::size_t r2 = 0; r2 < rows.size(); ++r2) {
        for (std::size_t j = 0; j <= rows[r2].size(); ++j) {
          Rows mutant = rows;
          mutant[r2].insert(at(mutant[r2], j), rows[r][i]);
          const std::set<std::string> rules = rules_of(test::with_rows(schedule, mutant));
          EXPECT_TRUE(rules.count("duplicate") == 1) << print_schedule_csv(test::with_rows(schedule, mutant));
          EXPECT_EQ(rules.count("placement"), r == r2 ? 0U : 1U);
        }
      }
    });
  }
}

TEST(Mutation, EverySwapOnARank) {
  Tally tally;
  for (const Schedule& schedule : small_schedules()) {
    const Rows rows = test::rows_of(schedule);
    for_each_place(rows, [&](std::size_t r, std::size_t i) {
      for (std::size_t j = i + 1; j < rows[r].size(); ++j) {
        Rows mutant = rows;
        std::swap(mutant[r][i], mutant[r][j]);
        compare(test::with_rows(schedule, mutant), &tally);
      }
    });
  }
  EXPECT_GT(tally.valid, 50);
  EXPECT_GT(tally.faulty, 400);
}

TEST(Mutation, EveryMoveToAnyPlace) {
  Tally tally;
  for (const Schedule& schedule : small_schedules()) {
    const Rows rows = test::rows_of(schedule);
    for_each_place(rows, [&](std::size_t r, std::size_t i) {
      Rows without = rows;
      without[r].erase(at(without[r], i));
      for (std::size_t r2 = 0; r2 < rows.size(); ++r2) {
        for (std::size_t j = 0; j <= without[r2].size(); ++j) {
          Rows mutant = without;
          mutant[r2].insert(at(mutant[r2], j), rows[r][i]);
          const Schedule moved = test::with_rows(schedule, mutant);
          compare(moved, &tally);
          EXPECT_EQ(rules_of(moved).count("placement"), r2 == r ? 0U : 1U);
        }
      }
    });
  }
  EXPECT_GT(tally.valid, 100);
  EXPECT_GT(tally.faulty, 2000);
}

// Another kind, stage or microbatch in one place: every value in and just outside the range.
TEST(Mutation, EveryOtherActionInOnePlace) {
  Tally tally;
  for (const Schedule& schedule : small_schedules()) {
    const Rows rows = test::rows_of(schedule);
    for_each_place(rows, [&](std::size_t r, std::size_t i) {
      for (int kind = 0; kind < 4; ++kind) {
        for (int stage = 0; stage <= schedule.stages; ++stage) {
          for (int m = -1; m <= schedule.microbatches; ++m) {
            Rows mutant = rows;
            mutant[r][i] = Action{m, static_cast<std::uint16_t>(stage), static_cast<ActionKind>(kind), 0};
            compare(test::with_rows(schedule, mutant), &tally);
          }
        }
      }
    });
  }
  EXPECT_GT(tally.faulty, 5000);
}

// All 24 x 24 orders of two ranks with two microbatches, and all 720 of one rank that splits its backward.
TEST(Mutation, EveryOrderOfAllActions) {
  Tally tally;
  const auto by_text = [](const Action& a, const Action& b) { return print_action(a) < print_action(b); };
  const Schedule two = test::generate("1f1b", {2, 1, 2}).value();
  Rows rows = test::rows_of(two);
  for (std::vector<Action>& row : rows) std::sort(row.begin(), row.end(), by_text);
  do {
    do {
      compare(test::with_rows(two, rows), &tally);
    } while (std::next_permutation(rows[1].begin(), rows[1].end(), by_text));
  } while (std::next_permutation(rows[0].begin(), rows[0].end(), by_text));
  EXPECT_EQ(tally.valid + tally.faulty, 576);
  EXPECT_GT(tally.valid, 10);

  const Schedule one = parse_schedule_csv("0F0,0F1,0I0,0I1,0W0,0W1\n", "one").value();
  rows = test::rows_of(one);
  do {
    compare(test::with_rows(one, rows), &tally);
  } while (std::next_permutation(rows[0].begin(), rows[0].end(), by_text));
  EXPECT_EQ(tally.valid + tally.faulty, 576 + 720);
}

}  // namespace
}  // namespace plumbline
