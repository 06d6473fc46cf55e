// ParamOverride: what a parameter gets instead of the optimizer configuration's settings, and the rules that
// say which parameters get it. Groups of an optimizer are made from them: parameters with equal overrides (and
// equally expert or not) share one group.
//
// Where settings come from, strongest first:
//   1. rules of the override provider,
//   2. the standard rules: no weight decay for biases and for parameters of one dimension, the decoupled
//      learning rate for embedding and output layer,
//   3. the optimizer configuration (lr, min_lr, betas, eps, ...),
//   4. the scheduler, which writes lr and weight_decay before every step out of 1 to 3.
// Two rules of the same source that give one parameter different values for one setting are an error.
#pragma once

#include <compare>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/optim/parameter.h"

namespace plumbline {

// Absent: as the next weaker source has it.
struct ParamOverride {
  std::optional<double> wd_mult, lr_mult;
  std::optional<double> max_lr, min_lr, start_wd, end_wd;
  std::optional<double> beta1, beta2, eps;
  std::optional<bool> is_decoupled_lr;
  std::optional<std::string> optimizer;

  bool empty() const { return *this == ParamOverride{}; }
  // "wd_mult=0 lr_mult=2", in this order; empty for none.
  std::string text() const;
  bool operator==(const ParamOverride&) const = default;
  auto operator<=>(const ParamOverride&) const = default;
};

// Which parameters: those whose name matches one of the patterns, or that satisfy the predicate.
struct ParamSelector {
  std::vector<std::string> names;                        // '*' any text, '?' one character; the whole name
  std::function<bool(const Parameter&)> predicate = {};  // sees the model's parameter, with its shape

  bool matches(const Parameter& parameter) const;
};

struct ParamRule {
  std::string what;  // for messages: "no weight decay for biases"
  ParamSelector which;
  ParamOverride gives;
};

// Whole-text match of a pattern with '*' and '?'.
bool matches_pattern(std::string_view pattern, std::string_view text);

// Rules 2 above.
std::vector<ParamRule> standard_rules(const OptimizerConfig& config);

// What one parameter gets from provider rules and standard rules. Errors name parameter, setting and both rules.
Result<ParamOverride> override_of(const Parameter& parameter, const std::vector<ParamRule>& provided,
                                  const std::vector<ParamRule>& standard);

// What distinguishes a group before it has parameters.
struct GroupKey {
  ParamOverride gives;
  bool expert = false;
  bool operator==(const GroupKey&) const = default;
  auto operator<=>(const GroupKey&) const = default;
};

// Groups of all chunks' parameters, sorted by key (no override first, dense before expert), parameters in
// registration order over the chunks. Every group is on every rank: `known` lists keys that other ranks have,
// and a key without a parameter here makes an empty group, as a checkpoint needs it.
Result<std::vector<ParamGroup>> build_param_groups(const std::vector<std::vector<ParameterPtr>>& chunks,
                                                   const OptimizerConfig& config,
                                                   const std::vector<ParamRule>& provided,
                                                   const std::vector<GroupKey>& known = {});
// The keys those groups have, sorted; what a rank tells the others.
Result<std::vector<GroupKey>> group_keys(const std::vector<std::vector<ParameterPtr>>& chunks,
                                         const OptimizerConfig& config,
                                         const std::vector<ParamRule>& provided);

}  // namespace plumbline
