// The simulator against two independent reference models: every line of tests/oracles/nccl, in all eight modes,
// read the way `plumbline check` reads it.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/scenario/examine.h"
#include "tests/support/oracle.h"

namespace plumbline::test {
namespace {

// A deadlock explains itself: a circle whose edges join, or operations that wait for what never comes.
void expect_explained(const ModeVerdict& verdict, const std::string& where) {
  for (const Finding& finding : verdict.findings) {
    if (finding.kind != FindingKind::kDeadlock) continue;
    EXPECT_FALSE(finding.operations.empty()) << where;
    EXPECT_FALSE(finding.why.empty()) << where;
    for (std::size_t i = 0; i < finding.cycle.size(); ++i) {
      EXPECT_EQ(finding.cycle[i].to.text, finding.cycle[(i + 1) % finding.cycle.size()].from.text) << where;
    }
    return;
  }
  EXPECT_TRUE(verdict.completes) << where << ": a deadlock without its finding";
}

struct Tally {
  int scenarios = 0;
  int modes = 0;
};

Tally compare(const std::string& file) {
  Tally tally;
  const Result<std::vector<Scenario>> all = parse_scenarios(read_data(file), file);
  if (!all) ADD_FAILURE() << all.error().text();
  if (!all) return tally;
  for (const Scenario& scenario : *all) {
    ++tally.scenarios;
    const Result<Verdict> verdict = examine_scenario(scenario, reference_models());
    EXPECT_TRUE(verdict) << verdict.error().text();
    if (!verdict) continue;
    EXPECT_EQ(scenario.expected.size(), reference_models().size()) << scenario.id;
    EXPECT_EQ(differences(scenario, *verdict), std::vector<std::string>()) << scenario.id;
    for (const ModeVerdict& mode : verdict->modes) {
      EXPECT_EQ(scenario.expected.count(mode.mode), 1U) << mode.mode;
      expect_explained(mode, scenario.id + " " + mode.mode);
      ++tally.modes;
    }
  }
  return tally;
}

TEST(NcclScenarios, EveryReportHasTheOraclesVerdict) {
  const Tally tally = compare("oracles/nccl/scenarios.jsonl");
  EXPECT_EQ(tally.scenarios, 40);
  EXPECT_EQ(tally.modes, 8 * 40);
}

TEST(NcclScenarios, RandomProgramsHaveTheOraclesVerdict) {
  const Tally tally = compare("oracles/nccl/random_programs.jsonl.gz");
  EXPECT_EQ(tally.scenarios, 4000);
  EXPECT_EQ(tally.modes, 8 * 4000);
}

}  // namespace
}  // namespace plumbline::test
