#include "engine/optim/param_overrides.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace plumbline {
namespace {

std::string value_text(double value) { return fmt::format("{}", value); }
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(const std::string& value) { return value; }

// visit(name, member) for every setting, in the order of text().
template <typename Visit>
void for_each_setting(Visit visit) {
  visit("wd_mult", &ParamOverride::wd_mult);
  visit("lr_mult", &ParamOverride::lr_mult);
  visit("max_lr", &ParamOverride::max_lr);
  visit("min_lr", &ParamOverride::min_lr);
  visit("start_wd", &ParamOverride::start_wd);
  visit("end_wd", &ParamOverride::end_wd);
  visit("beta1", &ParamOverride::beta1);
  visit("beta2", &ParamOverride::beta2);
  visit("eps", &ParamOverride::eps);
  visit("is_decoupled_lr", &ParamOverride::is_decoupled_lr);
  visit("optimizer", &ParamOverride::optimizer);
}

// A NaN would make a group that equals no group, not even itself.
Status check_numbers(const ParamRule& rule) {
  std::string bad;
  for_each_setting([&](const char* name, auto member) {
    if constexpr (std::is_same_v<decltype(member), std::optional<double> ParamOverride::*>) {
      const std::optional<double>& value = rule.gives.*member;
      if (value && !(std::isfinite(*value) && *value >= 0.0)) bad = fmt::format("{}={}", name, *value);
    }
  });
  if (bad.empty()) return {};
  return fail(ErrorCode::kConfig, fmt::format("rule '{}' gives {}; a setting is a finite number, 0 or more — "
                                              "correct the rule",
                                              rule.what, bad));
}

// Adds what the rules of one source give; two that contradict each other are an error.
Result<ParamOverride> combine(const Parameter& parameter, const std::vector<ParamRule>& rules) {
  ParamOverride combined;
  std::map<std::string, const ParamRule*> giver;
  for (const ParamRule& rule : rules) {
    if (!rule.which.matches(parameter)) continue;
    PL_TRY(check_numbers(rule));
    std::string conflict;
    for_each_setting([&](const char* name, auto member) {
      const auto& given = rule.gives.*member;
      if (!given) return;
      auto& have = combined.*member;
      if (have && *have != *given && conflict.empty()) {
        conflict = fmt::format("{}: rule '{}' gives {}={}, rule '{}' {}", parameter.name,
                               giver.at(name)->what, name, value_text(*have), rule.what, value_text(*given));
      }
      have = given;
      giver.emplace(name, &rule);
    });
    if (!conflict.empty()) {
      return fail(ErrorCode::kConfig,
                  conflict + "; rules that match one parameter must agree — narrow one of them");
    }
  }
  return combined;
}

// The group a key means, without parameters.
ParamGroup group_of(const GroupKey& key, const OptimizerConfig& config) {
  const ParamOverride& gives = key.gives;
  ParamGroup group;
  group.lr = gives.max_lr.value_or(config.lr) * gives.lr_mult.value_or(1.0);
  group.weight_decay = gives.start_wd.value_or(config.weight_decay) * gives.wd_mult.value_or(1.0);
  group.beta1 = gives.beta1.value_or(config.beta1);
  group.beta2 = gives.beta2.value_or(config.beta2);
  group.eps = gives.eps.value_or(config.eps);
  group.momentum = config.rule == OptimizerRule::kSgd ? config.momentum : 0.0;
  group.wd_mult = gives.wd_mult.value_or(1.0);
  group.lr_mult = gives.lr_mult.value_or(1.0);
  group.is_expert_parallel = key.expert;
  group.is_decoupled_lr = gives.is_decoupled_lr.value_or(false);
  // Absent stays absent: the scheduler's own settings apply, and a changed configuration reaches the group.
  group.max_lr = gives.max_lr;
  group.min_lr = gives.min_lr;
  group.start_wd = gives.start_wd;
  group.end_wd = gives.end_wd;
  group.optimizer = gives.optimizer;
  return group;
}

using KeyedParams = std::map<GroupKey, std::vector<ParameterPtr>>;

Result<KeyedParams> params_by_key(const std::vector<std::vector<ParameterPtr>>& chunks,
                                  const OptimizerConfig& config, const std::vector<ParamRule>& provided) {
  const std::vector<ParamRule> standard = standard_rules(config);
  KeyedParams keyed;
  for (const std::vector<ParameterPtr>& chunk : chunks) {
    for (const ParameterPtr& parameter : chunk) {
      Result<ParamOverride> gives = override_of(*parameter, provided, standard);
      if (!gives) return tl::unexpected(std::move(gives.error()));
      keyed[GroupKey{std::move(*gives), parameter->expert}].push_back(parameter);
    }
  }
  return keyed;
}

}  // namespace

std::string ParamOverride::text() const {
  std::string out;
  for_each_setting([&](const char* name, auto member) {
    const auto& value = this->*member;
    if (!value) return;
    if (!out.empty()) out += ' ';
    out += fmt::format("{}={}", name, value_text(*value));
  });
  return out;
}

bool matches_pattern(std::string_view pattern, std::string_view text) {
  // The last '*' takes one more character each time the rest does not fit.
  std::size_t p = 0, t = 0, star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool ParamSelector::matches(const Parameter& parameter) const {
  const bool by_name = std::any_of(names.begin(), names.end(), [&](const std::string& pattern) {
    return matches_pattern(pattern, parameter.name);
  });
  return by_name || (predicate && predicate(parameter));
}

std::vector<ParamRule> standard_rules(const OptimizerConfig& config) {
  std::vector<ParamRule> rules;
  ParamRule undecayed{"no weight decay for biases and one dimension", {{"*.bias"}}, {}};
  undecayed.which.predicate = [](const Parameter& parameter) { return parameter.value.dim() <= 1; };
  undecayed.gives.wd_mult = 0.0;
  rules.push_back(std::move(undecayed));
  if (config.decoupled_lr > 0.0) {
    ParamRule decoupled{"decoupled learning rate for embedding and output layer", {}, {}};
    decoupled.which.predicate = [](const Parameter& parameter) { return parameter.embedding_or_output; };
    decoupled.gives.max_lr = config.decoupled_lr;
    if (config.decoupled_min_lr > 0.0) decoupled.gives.min_lr = config.decoupled_min_lr;
    decoupled.gives.is_decoupled_lr = true;
    rules.push_back(std::move(decoupled));
  }
  return rules;
}

Result<ParamOverride> override_of(const Parameter& parameter, const std::vector<ParamRule>& provided,
                                  const std::vector<ParamRule>& standard) {
  Result<ParamOverride> strong = combine(parameter, provided);
  if (!strong) return strong;
  Result<ParamOverride> weak = combine(parameter, standard);
  if (!weak) return weak;
  for_each_setting([&](const char*, auto member) {
    auto& value = (*strong).*member;
    if (!value) value = std::move((*weak).*member);
  });
  return strong;
}

Result<std::vector<ParamGroup>> build_param_groups(const std::vector<std::vector<ParameterPtr>>& chunks,
                                                   const OptimizerConfig& config,
                                                   const std::vector<ParamRule>& provided,
                                                   const std::vector<GroupKey>& known) {
  Result<KeyedParams> keyed = params_by_key(chunks, config, provided);
  if (!keyed) return tl::unexpected(std::move(keyed.error()));
  for (const GroupKey& key : known) keyed->try_emplace(key);
  std::vector<ParamGroup> groups;
  groups.reserve(keyed->size());
  for (auto& [key, params] : *keyed) {
    groups.push_back(group_of(key, config));
    groups.back().params = std::move(params);
  }
  return groups;
}

Result<std::vector<GroupKey>> group_keys(const std::vector<std::vector<ParameterPtr>>& chunks,
                                         const OptimizerConfig& config,
                                         const std::vector<ParamRule>& provided) {
  const Result<KeyedParams> keyed = params_by_key(chunks, config, provided);
  if (!keyed) return tl::unexpected(keyed.error());
  std::vector<GroupKey> keys;
  for (const auto& entry : *keyed) keys.push_back(entry.first);
  return keys;
}

}  // namespace plumbline
