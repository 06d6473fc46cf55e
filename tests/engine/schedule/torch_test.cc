// Schedules as torch.distributed.pipelining makes them (tests/oracles/torch_pipelining): all valid ones pass.
#include <gtest/gtest.h>

#include "tests/engine/schedule/orders.h"
#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using nlohmann::json;
using test::csv_of;

void expect_valid(const json& line, const char* field) {
  const std::string label = line["schedule"].get<std::string>() + " " + field + " pp " + line["pp"].dump() +
                            " mb " + line["mb"].dump();
  const Result<Schedule> schedule = parse_schedule_csv(csv_of(line[field]), field);
  ASSERT_TRUE(schedule) << label << ": " << schedule.error().text();
  EXPECT_EQ(test::findings_text(validate_schedule(*schedule)), "") << label;
  EXPECT_EQ(schedule->rank_of_stage, line["stage_to_rank"].get<std::vector<std::int32_t>>()) << label;
  EXPECT_EQ(schedule->microbatches, line["mb"].get<int>()) << label;
}

TEST(Torch, EverySmallScheduleIsValid) {
  int valid = 0;
  int repaired = 0;
  const int lines =
      test::for_each_line("oracles/torch_pipelining/generated/schedules_small.jsonl", [&](const json& line) {
        const bool usable = line["ok"].get<bool>() || line.contains("compute_repaired");
        if (!usable) return;  // refused before there were rows
        const bool repair = line.contains("compute_repaired");
        expect_valid(line, repair ? "compute_repaired" : "compute");
        // Lowered, merged and simulated rows hold communication, sharding, I and W joined, idle cells.
        for (const char* field : {"comms", "comms_deferred", "merged", "sim"}) {
          if (line.contains(field) && line[field].is_array()) expect_valid(line, field);
        }
        ++(repair ? repaired : valid);
      });
  EXPECT_EQ(lines, 252);
  EXPECT_EQ(valid, 177);
  EXPECT_EQ(repaired, 15);
}

// The visualizer's time axis puts the last W of some ZBV schedules into another rank's row.
TEST(Torch, SpacedRowsAreValidButForMisplacedEnds) {
  int valid = 0;
  int misplaced = 0;
  test::for_each_line("oracles/torch_pipelining/generated/schedules_small.jsonl", [&](const json& line) {
    if (!line.contains("spaced") || !line["spaced"].is_array()) return;
    Schedule schedule = parse_schedule_csv(csv_of(line["spaced"]), "spaced").value();
    schedule.rank_of_stage = line["stage_to_rank"].get<std::vector<std::int32_t>>();
    const std::vector<ScheduleFinding> findings = validate_schedule(schedule);
    for (const ScheduleFinding& finding : findings) EXPECT_NE(finding.why.find("W"), std::string::npos);
    for (const ScheduleFinding& finding : findings) EXPECT_EQ(finding.rule, "placement") << finding.why;
    ++(findings.empty() ? valid : misplaced);
  });
  EXPECT_EQ(valid, 181);
  EXPECT_EQ(misplaced, 11);
}

// Version 2.14.1 numbers the last rank's forwards of 1F1B one too high: microbatch 0 is never run, one too
// many is.
TEST(Torch, UnrepairedOneForwardOneBackwardIsRefused) {
  int refused = 0;
  test::for_each_line("oracles/torch_pipelining/generated/schedules_small.jsonl", [&](const json& line) {
    if (!line.contains("compute_repaired")) return;
    const Schedule schedule = parse_schedule_csv(csv_of(line["compute"]), "torch").value();
    std::string rules;
    for (const ScheduleFinding& finding : validate_schedule(schedule)) rules += finding.rule + " ";
    EXPECT_NE(rules.find("missing"), std::string::npos);
    ++refused;
  });
  EXPECT_EQ(refused, 15);
}

// Single faults in computations. Upstream's validator accepts every duplicate here; what we accept are other
// orders that can finish, and all of these its lowering, which runs the order, accepts too.
TEST(Torch, MutantsAreFoundUnlessTheyCanFinish) {
  int found = 0;
  int accepted = 0;
  test::for_each_line("oracles/torch_pipelining/generated/mutants.jsonl.gz", [&](const json& line) {
    if (line["level"] != "compute") return;
    const Result<Schedule> schedule = parse_schedule_csv(csv_of(line["rows"]), "mutant");
    ASSERT_TRUE(schedule) << schedule.error().text();
    if (!validate_schedule(*schedule).empty()) {
      ++found;
      return;
    }
    ++accepted;
    const std::string kind = line["kind"];
    const bool other_order = kind.starts_with("swap_two_") || kind.starts_with("reverse_backward_order") ||
                             kind.starts_with("all_forwards_first");
    EXPECT_TRUE(other_order) << kind;
    EXPECT_EQ(line["torch_lower"], "accept") << kind;
  });
  EXPECT_EQ(found, 373);
  EXPECT_EQ(accepted, 29);
}

TEST(Torch, SameOrderAsOurGenerators) {
  int compared = 0;
  test::for_each_line("oracles/torch_pipelining/generated/schedules_small.jsonl", [&](const json& line) {
    const std::string schedule = line["schedule"];
    const char* name = schedule == "GPipe" ? "gpipe" : schedule == "1F1B" ? "1f1b" : nullptr;
    if (name == nullptr || !line.contains("compute")) return;
    Schedule theirs =
        parse_schedule_csv(csv_of(line[line.contains("compute_repaired") ? "compute_repaired" : "compute"]),
                           name)
            .value();
    const Schedule ours = test::generate(name, {line["pp"], 1, line["mb"]}).value();
    for (int rank = 0; rank < ours.ranks; ++rank) {
      std::vector<Action> row(theirs.row(rank).begin(), theirs.row(rank).end());
      ASSERT_EQ(row.back().kind, ActionKind::kReduceGrad);
      row.pop_back();
      EXPECT_EQ(row, std::vector<Action>(ours.row(rank).begin(), ours.row(rank).end())) << line["mb"];
    }
    ++compared;
  });
  EXPECT_EQ(compared, 21 + 15);
}

}  // namespace
}  // namespace plumbline
