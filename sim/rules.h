// NCCL's rules as the simulator keeps them, by number: what a verdict refers to, what `plumbline explain`
// prints, and what docs/nccl-rules.md is made of. The examples are scenarios; a test runs each of them in the
// modes it names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "sim/scenario/scenario.h"
#include "sim/verdict.h"

namespace plumbline {

enum class RuleStatus : std::uint8_t {
  kAlways,    // in force whatever the model
  kMode,      // a switch of the model
  kReported,  // leads to a finding
};

struct RuleExample {
  // Lines "RANK: HOST OPERATION", host operations in the words of a scenario's TOML form. The communicators C
  // and D hold all ranks.
  std::string_view program;
  // "MODE=VALUE ...": what it amounts to.
  std::string_view verdicts;
};

struct NcclRule {
  std::string_view number;  // "N6"
  std::string_view title;
  RuleStatus status = RuleStatus::kAlways;
  std::string_view says;         // what NCCL does
  std::string_view consequence;  // what that means for a pipeline program
  std::string_view option;       // of [sim], for a mode; else empty
  RuleExample example;           // may be empty
  std::string_view source;       // guide, source or public report
};

// In order of number.
const std::vector<NcclRule>& nccl_rules();
// By number, upper or lower case; the error names the nearest.
Result<const NcclRule*> find_rule(std::string_view number);

Scenario example_scenario(const NcclRule& rule);
struct ExpectedVerdict {
  std::string mode;
  std::string value;
};
std::vector<ExpectedVerdict> example_verdicts(const NcclRule& rule);

// Numbers of the rules that a finding, and all findings of a verdict, rest on, in order; empty for findings
// that are not about communication.
std::vector<std::string> rules_behind(const Finding& finding);
std::vector<std::string> rules_behind(const Verdict& verdict);
// Of one wait, by its reason.
std::vector<std::string> rules_behind(const WaitEdge& edge);

// One rule as text of `width` columns, and all of them as Markdown (docs/nccl-rules.md).
std::string rule_text(const NcclRule& rule, int width);
std::string rules_docs();

}  // namespace plumbline
