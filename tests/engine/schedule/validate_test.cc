// One case a rule, with the sentence a person reads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/schedule/schedule.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

Schedule schedule_of(const char* csv) { return parse_schedule_csv(csv, "s.csv").value(); }

std::string findings(const char* csv, bool fragment = false) {
  const Result<Schedule> schedule = parse_schedule_csv(csv, "s.csv", CsvOptions{fragment});
  return schedule ? test::findings_text(validate_schedule(*schedule, fragment)) : schedule.error().text();
}

TEST(Validate, SentencesNameActionsAndRanks) {
  EXPECT_EQ(findings("0F0,0B0,0F0\n"),
            "duplicate: 0F0 on rank 0 at position 2 is done already, by rank 0 at position 0\n");
  EXPECT_EQ(findings("0F0,0I0,0B0,0W0\n"),
            "duplicate: 0I0 on rank 0 at position 1 repeats a part of 0B0 (B is I and W together), which is "
            "rank 0 at "
            "position 2\n"
            "duplicate: 0W0 on rank 0 at position 3 repeats a part of 0B0 (B is I and W together), which is "
            "rank 0 at "
            "position 2\n");
  EXPECT_EQ(findings("0B0,0F0\n"),
            "order: 0B0 (rank 0, position 0) needs 0F0, which stands behind it at position 1\n");
  EXPECT_EQ(findings("0F0,1F0,1B0,0B0\n0F1,0B1\n1F1,1B1\n"),
            "placement: 0F1 is on rank 1, but rank 0 holds stage 0\nplacement: 0B1 is on rank 1, but rank 0 "
            "holds stage 0\n"
            "placement: 1F1 is on rank 2, but rank 0 holds stage 1\nplacement: 1B1 is on rank 2, but rank 0 "
            "holds stage 1\n");
}

TEST(Validate, MissingMicrobatchesComeInRuns) {
  EXPECT_EQ(findings("0F0,0F1,0F2,0F3,0B3\n"),
            "missing: stage 0 on rank 0 lacks B (or I and W) of microbatches 0 to 2\n");
  EXPECT_EQ(findings("0F0,0I0,0F1,0W1,0B2,0F3,0B3\n"),
            "missing: stage 0 on rank 0 lacks W (it has I) of microbatch 0\n"
            "missing: stage 0 on rank 0 lacks I (it has W) of microbatch 1\n"
            "missing: stage 0 on rank 0 lacks F of microbatch 2\n");
}

TEST(Validate, CycleNamesTheChain) {
  // Rank 0 wants the gradient of microbatch 1 first, rank 1 makes that of microbatch 0 first and waits for
  // 0F1.
  EXPECT_EQ(
      findings("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
      "cycle: ranks wait for each other (rank:action): 0:0B0 waits for 1:1B0, which stands behind 1:1F1; "
      "1:1F1 waits for 0:0F1, which stands behind 0:0B0\n");
  const Schedule schedule = schedule_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  const std::vector<ScheduleFinding> found = validate_schedule(schedule);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[0].position, 1);
}

TEST(Validate, EachCycleIsOneFindingAndItsVictimsNone) {
  // Even ranks want the gradient of microbatch 0 before they forward microbatch 1, odd ranks the reverse.
  const std::string even = "{0}F0,{0}B0,{0}F1,{0}B1\n";
  const std::string odd = "{0}F0,{0}F1,{0}B0,{0}B1\n";
  const auto rows = [&](int ranks) {
    std::string text;
    for (int rank = 0; rank < ranks; ++rank)
      text += fmt::format(fmt::runtime(rank % 2 == 0 ? even : odd), rank);
    return text;
  };
  const std::string first =
      "cycle: ranks wait for each other (rank:action): 0:0B0 waits for 1:1B0, which stands behind 1:1F1; "
      "1:1F1 waits for 0:0F1, which stands behind 0:0B0\n";
  const std::string second =
      "cycle: ranks wait for each other (rank:action): 2:2B0 waits for 3:3B0, which stands behind 3:3F1; "
      "3:3F1 waits for 2:2F1, which stands behind 2:2B0\n";
  EXPECT_EQ(findings(rows(4).c_str()), first + second);
  // Rank 2, the last one here, could go on but for 1F1: stuck, yet in no cycle of its own.
  EXPECT_EQ(findings(rows(3).c_str()), first);
}

TEST(Validate, Pairs) {
  EXPECT_EQ(findings("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"), "");
  EXPECT_EQ(findings("(0F0;0B0)OVERLAP_F_B\n"),
            "pair: 0F0 and 0B0 on rank 0 run as one overlapped pair, but 0B0 needs 0F0 done before\n");
  EXPECT_EQ(findings("(0F0;0F1)OVERLAP_F_B,0B0,0B1\n"),
            "pair: (0F0;0F1)OVERLAP_F_B on rank 0 is not one forward overlapped with one B, I or W\n");
  Schedule open = schedule_of("0F0,0B0\n");
  open.actions[1].paired = 1;
  EXPECT_EQ(test::findings_text(validate_schedule(open)),
            "pair: 0B0 is the last action of rank 0 and has no second half\n");
  open = schedule_of("0F0,0F1,0B0,0B1\n");
  open.actions[1].paired = open.actions[2].paired = 1;
  EXPECT_NE(test::findings_text(validate_schedule(open)).find("begins another pair"), std::string::npos);
}

// A pair starts as one: both halves' needs come first. Alone, 0F1 would run and free rank 1.
TEST(Validate, PairWaitsForBothHalves) {
  EXPECT_EQ(findings("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"), "");
  EXPECT_EQ(
      findings("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n"),
      "cycle: ranks wait for each other (rank:action): 0:0F1 waits for 1:1B0, which stands behind 1:1F1; "
      "1:1F1 waits for 0:0F1\n");
}

TEST(Validate, CommunicationForRangeAndRankFirst) {
  EXPECT_EQ(findings("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
                     "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n"),
            "");
  const std::string all = findings("0F0,0RECV_F0,0B0,0SEND_B0\n1F0,1SEND_F0,1RECV_B0,1B0,0UNSHARD\n");
  EXPECT_EQ(all.substr(0, all.find("order: ")),
            "range: 0RECV_F0 on rank 0 has no partner: stage 0 is the first stage\n"
            "range: 0SEND_B0 on rank 0 has no partner: stage 0 is the first stage\n"
            "range: 1SEND_F0 on rank 1 has no partner: stage 1 is the last stage\n"
            "range: 1RECV_B0 on rank 1 has no partner: stage 1 is the last stage\n"
            "placement: 0UNSHARD is on rank 1, but rank 0 holds stage 0\n");
  EXPECT_EQ(findings("0F0,0SEND_F0\n", true), "");
}

TEST(Validate, RangeAndHolders) {
  Schedule schedule = schedule_of("0F0,0B0\n");
  schedule.actions.push_back(Action{7, 0, ActionKind::kForward, 0});
  schedule.offsets.back() = 3;
  EXPECT_EQ(test::findings_text(validate_schedule(schedule)),
            "range: 0F7 on rank 0 is outside the schedule's 1 stages and 1 microbatches\n");
  schedule = schedule_of("0F0,0B0\n");
  schedule.stages = 3;
  schedule.rank_of_stage = {0, -1, 5};
  EXPECT_EQ(test::findings_text(validate_schedule(schedule, true)),
            "placement: stage 2 is on rank 5, but there are 1 ranks\n");
  schedule.rank_of_stage = {0, -1, 0};
  EXPECT_EQ(test::findings_text(validate_schedule(schedule)),
            "placement: no rank holds stage 1\n"
            "missing: stage 2 on rank 0 lacks F and B (or I and W) of microbatch 0\n");
  schedule = schedule_of("0F0,0B0\n");
  schedule.forward_only = true;
  EXPECT_EQ(test::findings_text(validate_schedule(schedule)),
            "range: 0B0 on rank 0 belongs to a backward, but the schedule is forward only\n");
}

TEST(Validate, FragmentChecksWhatIsThere) {
  EXPECT_EQ(findings("1F0,1B0\n3F5\n", true), "");
  EXPECT_EQ(findings("1B0,1F0\n", true),
            "order: 1B0 (rank 0, position 0) needs 1F0, which stands behind it at position 1\n");
  EXPECT_EQ(findings("1F0,1F0\n", true),
            "duplicate: 1F0 on rank 0 at position 1 is done already, by rank 0 at position 0\n");
}

TEST(Validate, DependenciesOfEveryKind) {
  const auto text = [](const char* cell, bool forward_only = false) {
    const Dependencies needs = dependencies(parse_cell(cell).value().front(), 4, forward_only);
    std::string out;
    for (int i = 0; i < needs.count; ++i) out += print_action(needs.on[i]) + " ";
    return out;
  };
  EXPECT_EQ(text("0F5"), "");
  EXPECT_EQ(text("2F5"), "1F5 ");
  EXPECT_EQ(text("2B5"), "2F5 3B5 ");
  EXPECT_EQ(text("2I5"), "2F5 3B5 ");
  EXPECT_EQ(text("3B5"), "3F5 ");
  EXPECT_EQ(text("3W5"), "3I5 ");
  EXPECT_EQ(text("2B5", true), "");
  EXPECT_EQ(text("2SEND_F5"), "");
  EXPECT_EQ(text("2UNSHARD"), "");
}

TEST(Validate, StagesOfRankAscend) {
  const Schedule schedule = test::generate("interleaved", {2, 3, 2}).value();
  EXPECT_EQ(schedule.stages_of_rank(1), (std::vector<int>{1, 3, 5}));
  EXPECT_TRUE(schedule.stages_of_rank(7).empty());
  EXPECT_EQ(loop_placement(5, 2), (std::vector<std::int32_t>{0, 1, 0, 1, 0}));
}

}  // namespace
}  // namespace plumbline
