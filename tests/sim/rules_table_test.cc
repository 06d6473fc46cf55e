// The table of rules: every example amounts to what it says, and every wait that the simulator or the checker
// reports has a rule behind it.
#include <set>

#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "sim/rules.h"
#include "sim/scenario/examine.h"
#include "sim/verify/check.h"
#include "tests/support/oracle.h"

namespace plumbline::test {
namespace {

TEST(RulesTable, ExamplesAmountToWhatTheySay) {
  int examples = 0;
  for (const NcclRule& rule : nccl_rules()) {
    if (rule.example.program.empty()) continue;
    ++examples;
    const Scenario scenario = example_scenario(rule);
    for (const ExpectedVerdict& expected : example_verdicts(rule)) {
      const auto model = model_named(expected.mode);
      ASSERT_TRUE(model) << rule.number << " " << expected.mode;
      const auto verdict = examine_scenario(scenario, {*model});
      ASSERT_TRUE(verdict) << verdict.error().text();
      EXPECT_EQ(reference_value(verdict->modes.front()), expected.value)
          << rule.number << " " << expected.mode;
    }
  }
  EXPECT_GE(examples, 20);
}

TEST(RulesTable, NumbersAscendAndModesNameTheirOption) {
  int before = 0;
  for (const NcclRule& rule : nccl_rules()) {
    const auto number = static_cast<int>(parse_integer(rule.number.substr(1)).value());
    EXPECT_GT(number, before);
    before = number;
    EXPECT_EQ(rule.status == RuleStatus::kMode, !rule.option.empty()) << rule.number;
    EXPECT_FALSE(rule.says.empty() || rule.consequence.empty() || rule.source.empty()) << rule.number;
    EXPECT_EQ(find_rule(rule.number).value(), &rule);
  }
  EXPECT_EQ(find_rule("n46").value()->number, "N46");
  EXPECT_FALSE(find_rule("N999"));
  EXPECT_FALSE(find_rule(""));
}

void expect_rules(const std::vector<WaitEdge>& edges, std::set<std::string>& reached,
                  const std::string& where) {
  for (const WaitEdge& edge : edges) {
    const auto rules = rules_behind(edge);
    EXPECT_FALSE(rules.empty()) << where << ": '" << edge.reason << "' has no rule";
    for (const std::string& rule : rules) {
      EXPECT_TRUE(find_rule(rule)) << rule;
      reached.insert(rule);
    }
  }
}

TEST(RulesTable, EveryWaitHasARule) {
  const auto all = parse_scenarios(read_data("oracles/nccl/random_programs.jsonl.gz"), "random");
  ASSERT_TRUE(all);
  std::set<std::string> reached;
  int checked = 0;
  for (std::size_t i = 0; i < all->size(); i += 4) {
    const Scenario& scenario = (*all)[i];
    const auto verdict = examine_scenario(scenario, reference_models());
    if (!verdict) continue;
    for (const ModeVerdict& mode : verdict->modes) {
      for (const Finding& finding : mode.findings) {
        expect_rules(finding.waits, reached, scenario.id);
        EXPECT_FALSE(rules_behind(finding).empty()) << finding_kind_name(finding.kind);
      }
    }
    const auto program = scenario_program(scenario);
    const auto linked = link_program(*program);
    if (!linked || !is_provable(*linked)) continue;
    const auto proved = check_program(*linked);
    ASSERT_TRUE(proved);
    for (const Finding& finding : proved->modes[0].findings)
      expect_rules(finding.waits, reached, scenario.id);
    ++checked;
  }
  EXPECT_GT(checked, 800);
  EXPECT_EQ(reached,
            (std::set<std::string>{"N2", "N20", "N32", "N4", "N46", "N52", "N57", "N59", "N6", "N69"}));
}

}  // namespace
}  // namespace plumbline::test
