// Scenarios from lines "RANK: HOST OPERATION" for tests; communicators C and D hold all ranks.
#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "sim/rules.h"
#include "sim/scenario/examine.h"

namespace plumbline::test {

inline Scenario scenario_of_lines(std::string_view lines) {
  NcclRule rule;
  rule.number = "test";
  rule.example.program = lines;
  return example_scenario(rule);
}

inline Program program_of_lines(std::string_view lines) {
  const auto program = scenario_program(scenario_of_lines(lines));
  EXPECT_TRUE(program) << program.error().text();
  return program ? *program : Program{};
}

inline ModeVerdict examine_lines(std::string_view lines, std::string_view mode = "rendezvous") {
  const auto verdict = examine_scenario(scenario_of_lines(lines), {model_named(mode).value()});
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? verdict->modes.front() : ModeVerdict{};
}

inline std::string value_of_lines(std::string_view lines, std::string_view mode = "rendezvous") {
  return reference_value(examine_lines(lines, mode));
}

// The deadlock among the findings; none fails the test.
inline Finding deadlock_of(const ModeVerdict& verdict) {
  for (const Finding& finding : verdict.findings) {
    if (finding.kind == FindingKind::kDeadlock) return finding;
  }
  ADD_FAILURE() << "no deadlock";
  return {};
}

}  // namespace plumbline::test
