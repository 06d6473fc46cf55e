#include "engine/optim/param_groups.h"

#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace plumbline {
namespace {

const StateValue* setting(const StateDict& group, const std::string& key) {
  const StateValue* value = group.find(key);
  return value != nullptr ? value : group.find("pre_" + key);
}

// One text for all values that Python finds equal, and different ones for others: a double is written with
// the digits that tell it from its neighbours.
std::optional<std::string> value_text(const StateValue* value) {
  if (value == nullptr || value->none()) return "None";
  if (const auto* flag = value->get<bool>()) return *flag ? "1" : "0";
  if (const auto* whole = value->get<std::int64_t>()) return fmt::format("{}", *whole);
  if (const auto* real = value->get<double>()) {
    const bool whole = std::abs(*real) < 0x1p53 && std::trunc(*real) == *real;
    return whole ? fmt::format("{}", static_cast<std::int64_t>(*real)) : fmt::format("{}", *real);
  }
  if (const auto* word = value->get<std::string>()) return fmt::format("\"{}\"", *word);
  return std::nullopt;
}

using Names = std::vector<std::string>;

// Identities of a list of groups; `which` is "saved" or "current".
Result<Names> identities(const StateList& groups, const std::vector<std::string>& keys,
                         std::string_view which) {
  Names names;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto* group = groups[i].get<StateDict>();
    if (group == nullptr) {
      return fail(ErrorCode::kState, fmt::format("{} parameter group {} is {}; it must be a dict", which, i,
                                                 describe(groups[i])));
    }
    Result<std::string> name = param_group_identity(*group, keys);
    if (!name)
      return fail(name.error().code,
                  fmt::format("{} parameter group {}: {}", which, i, name.error().message));
    names.push_back(std::move(*name));
  }
  return names;
}

// The place of `name` after `begin`, or the size.
std::size_t find_from(const Names& names, const std::string& name, std::size_t begin) {
  while (begin < names.size() && names[begin] != name) ++begin;
  return begin;
}

// Whether both have a list of parameters, and of different lengths.
std::optional<std::string> params_differ(const StateDict& current, const StateDict& saved) {
  const StateValue* ours = current.find("params");
  const StateValue* theirs = saved.find("params");
  if (ours == nullptr || theirs == nullptr) return std::nullopt;
  const auto *have = ours->get<StateList>(), *had = theirs->get<StateList>();
  if (have != nullptr && had != nullptr && have->size() == had->size()) return std::nullopt;
  return fmt::format("its params are {}, of the saved group {}; they must be equally many", describe(*ours),
                     describe(*theirs));
}

}  // namespace

const std::vector<std::string>& param_group_identifier_keys(GroupIdentity identity) {
  static const std::vector<std::string> four{"wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr"};
  static const std::vector<std::string> nine{"end_wd",         "max_lr",  "min_lr",  "optimizer",
                                             "start_wd",       "wd_mult", "lr_mult", "is_expert_parallel",
                                             "is_decoupled_lr"};
  return identity == GroupIdentity::kFour ? four : nine;
}

Result<std::string> param_group_identity(const StateDict& group, const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) {
    const StateValue* value = setting(group, key);
    const std::optional<std::string> shown = value_text(value);
    if (!shown) {
      return fail(ErrorCode::kState,
                  fmt::format("{} is {}; a setting that tells groups apart must be a number, "
                              "bool, text or None",
                              key, describe(*value)));
    }
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, *shown);
  }
  return text;
}

Result<std::vector<std::size_t>> match_param_groups(const StateList& current, const StateList& saved,
                                                    const std::vector<std::string>& keys) {
  const Result<Names> wanted = identities(current, keys, "current");
  PL_TRY(wanted);
  const Result<Names> had = identities(saved, keys, "saved");
  PL_TRY(had);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < wanted->size(); ++i) {
    const std::string& name = (*wanted)[i];
    const std::size_t place = find_from(*had, name, 0);
    if (place == had->size()) {
      std::string all;
      for (const std::string& other : *had) all += (all.empty() ? "" : "; ") + other;
      return fail(ErrorCode::kState, fmt::format("parameter group {} ({}) was not saved; saved groups: {}", i,
                                                 name, all.empty() ? "none" : all));
    }
    if (const std::size_t again = find_from(*had, name, place + 1); again < had->size()) {
      return fail(ErrorCode::kState,
                  fmt::format("parameter group {} ({}) was saved twice, as groups {} and {}; more "
                              "settings are needed to tell groups apart",
                              i, name, place, again));
    }
    if (const std::size_t twin = find_from(*wanted, name, i + 1); twin < wanted->size()) {
      return fail(ErrorCode::kState,
                  fmt::format("parameter groups {} and {} are alike ({}); more settings are "
                              "needed to tell groups apart",
                              i, twin, name));
    }
    places.push_back(place);
  }
  return places;
}

Result<StateList> filter_and_reorder_param_groups(const StateList& current, const StateList& saved,
                                                  const std::vector<std::string>& keys, Form form) {
  if (form == Form::kByPosition && current.size() != saved.size()) {
    return fail(ErrorCode::kState,
                fmt::format("the optimizer has {} parameter groups, {} were saved; parameters that "
                            "keep their places need equally many",
                            current.size(), saved.size()));
  }
  const Result<std::vector<std::size_t>> places = match_param_groups(current, saved, keys);
  PL_TRY(places);
  StateList out;
  for (std::size_t i = 0; i < current.size(); ++i) {
    StateDict group = *saved[(*places)[i]].get<StateDict>();
    if (form == Form::kByPosition) {
      const StateValue* params = saved[i].get<StateDict>()->find("params");
      if (params != nullptr) group["params"] = *params;
    }
    if (const auto differ = params_differ(*current[i].get<StateDict>(), group))
      return fail(ErrorCode::kState, fmt::format("parameter group {}: {}", i, *differ));
    out.emplace_back(std::move(group));
  }
  return out;
}

}  // namespace plumbline
