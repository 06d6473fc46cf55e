#include "engine/optim/param_groups.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/optim/megatron_optimizer.h"
#include "engine/optim/proxy_dict.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

StateValue value_of(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    StateList list;
    for (const Json& element : json) list.push_back(value_of(element));
    return list;
  }
  StateDict dict;
  for (const auto& [key, value] : json.items()) dict[key] = value_of(value);
  return dict;
}

StateList list_of(const Json& json) { return *value_of(json).get<StateList>(); }

struct Counts {
  int equal = 0, refused = 0, cut = 0, alike = 0, moved = 0;
};

// `result` is upstream's: the settings of the match, but "params" by position.
void compare_groups(const Json& line, Counts& counts) {
  const std::vector<std::string>& keys = param_group_identifier_keys(GroupIdentity::kNine);
  const StateList current = list_of(line["current"]), saved = list_of(line["saved"]);
  const Result<StateList> ours = filter_and_reorder_param_groups(current, saved, keys);
  if (line.contains("error")) {
    EXPECT_FALSE(ours) << line.dump();
    ++counts.refused;
    return;
  }
  if (!ours) {  // the departures: a group of the optimizer without a match, and groups that are alike
    const bool cut = current.size() > saved.size();
    EXPECT_NE(ours.error().message.find(cut ? "was not saved" : "was saved twice"), std::string::npos)
        << ours.error().text() << " for " << line.dump();
    ++(cut ? counts.cut : counts.alike);
    return;
  }
  ++counts.equal;
  int moved = 0;
  ASSERT_EQ(ours->size(), line["result"].size()) << line.dump();
  for (std::size_t i = 0; i < ours->size(); ++i) {
    StateDict got = *(*ours)[i].get<StateDict>(), wanted = *value_of(line["result"][i]).get<StateDict>();
    // Identity of the match, by its learning rate: the recorded groups all have different ones.
    const auto from = std::find_if(saved.begin(), saved.end(), [&](const StateValue& group) {
      return group.get<StateDict>()->number("lr").value() == wanted.number("lr").value();
    });
    EXPECT_EQ(first_difference(got.at("params"), from->get<StateDict>()->at("params")), "") << line.dump();
    if (!first_difference(got.at("params"), wanted.at("params")).empty()) ++moved;
    got.erase("params");
    wanted.erase("params");
    EXPECT_EQ(first_difference(got, wanted), "") << line.dump();
  }
  if (moved > 0) ++counts.moved;
  // The form that leaves "params" in their places is upstream's whole result.
  const Result<StateList> placed = filter_and_reorder_param_groups(current, saved, keys, Form::kByPosition);
  ASSERT_EQ(placed.has_value(), current.size() == saved.size());
  if (placed) EXPECT_EQ(first_difference(*placed, value_of(line["result"])), "") << line.dump();
}

void compare_step(const Json& line) {
  StateDict state = *value_of(line["state"]).get<StateDict>();
  const Result<std::optional<std::int64_t>> step = extract_common_per_param_step(state);
  ASSERT_EQ(step.has_value(), !line.contains("error")) << line.dump();
  if (!step) return;
  ASSERT_EQ(step->has_value(), !line["result"].is_null()) << line.dump();
  if (!*step) return;
  EXPECT_EQ(**step, line["result"].get<std::int64_t>()) << line.dump();
  restore_common_per_param_step(state, **step + 1);
  for (const auto& [key, entry] : state)
    EXPECT_EQ(entry.get<StateDict>()->integer("step").value(), **step + 1);
}

void compare_proxy(const Json& line) {
  StateList inner = list_of(line["inner"]);
  std::vector<StateDict*> dicts;
  for (StateValue& value : inner) dicts.push_back(value.get<StateDict>());
  const ProxyDict proxy(dicts);
  EXPECT_EQ(proxy.size(), line["len"].get<std::size_t>());
  // The recorded order is that of insertion, which a JSON object does not keep: compare as sets of items.
  const auto items = proxy.items();
  ASSERT_EQ(items.size(), line["items"].size());
  for (const Json& item : line["items"]) {
    const ProxyDict::Key key{item[0][0].get<std::size_t>(), item[0][1].get<std::string>()};
    EXPECT_EQ(first_difference(proxy[key], value_of(item[1])), "") << item.dump();
  }
  EXPECT_TRUE(line["missing"].is_null());
  EXPECT_TRUE((proxy[{1, "nowhere"}].none()));
}

TEST(ParamGroups, EqualMegatronOnEveryRecordedLine) {
  Counts counts;
  int steps = 0, proxies = 0;
  const int lines = test::for_each_line("oracles/megatron/param_group_match.jsonl.gz", [&](const Json& line) {
    const std::string kind = line.value("kind", "");
    if (kind == "common_step")
      compare_step(line), ++steps;
    else if (kind == "proxy_dict")
      compare_proxy(line), ++proxies;
    else
      compare_groups(line, counts);
  });
  EXPECT_EQ(lines, 207);
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(proxies, 1);
  EXPECT_EQ(counts.refused, 23);
  EXPECT_EQ(counts.equal, 148);
  EXPECT_EQ(counts.cut, 28);
  EXPECT_EQ(counts.alike, 1);
  EXPECT_EQ(counts.moved, 46);
}

StateDict group(std::int64_t param, double wd_mult) {
  return {{"params", StateList{param}}, {"lr", 0.1}, {"wd_mult", wd_mult}};
}

TEST(ParamGroups, APermutedListKeepsParametersWithTheirSettings) {
  const StateList current{group(0, 1.0), group(1, 0.0)}, saved{group(0, 0.0), group(1, 1.0)};
  const StateList moved =
      filter_and_reorder_param_groups(current, saved, param_group_identifier_keys()).value();
  EXPECT_EQ(first_difference(moved, StateList{saved[1], saved[0]}), "");
  const StateList placed =
      filter_and_reorder_param_groups(current, saved, param_group_identifier_keys(), Form::kByPosition)
          .value();
  EXPECT_EQ(first_difference(placed, StateList{group(0, 1.0), group(1, 0.0)}), "");
}

TEST(ParamGroups, IdentityFollowsPythonsEquality) {
  const auto& keys = param_group_identifier_keys();
  const auto text = [&](const StateDict& settings) { return param_group_identity(settings, keys).value(); };
  EXPECT_EQ(text({}), "wd_mult=None lr_mult=None is_expert_parallel=None is_decoupled_lr=None");
  EXPECT_EQ(text({{"wd_mult", StateValue()}}), text({}));
  EXPECT_EQ(text({{"wd_mult", 1}}), text({{"wd_mult", 1.0}}));
  EXPECT_EQ(text({{"wd_mult", true}}), text({{"pre_wd_mult", 1.0}}));
  EXPECT_NE(text({{"wd_mult", 0.1}}), text({{"wd_mult", 0.1 + 1e-16}}));
  EXPECT_EQ(text({{"wd_mult", -0.0}}), text({{"wd_mult", 0}}));
  EXPECT_EQ(param_group_identifier_keys(GroupIdentity::kNine).size(), 9u);
}

TEST(ParamGroups, ErrorsNameTheGroup) {
  const auto& keys = param_group_identifier_keys();
  const auto refusal = [&](const StateList& current, const StateList& saved) {
    const auto out = filter_and_reorder_param_groups(current, saved, keys);
    return out ? std::string("accepted") : out.error().text();
  };
  const std::string one = "wd_mult=1 lr_mult=None is_expert_parallel=None is_decoupled_lr=None";
  const std::string zero = "wd_mult=0 lr_mult=None is_expert_parallel=None is_decoupled_lr=None";
  EXPECT_EQ(refusal({group(0, 0.0), group(1, 1.0)}, {group(0, 0.0)}),
            "parameter group 1 (" + one + ") was not saved; saved groups: " + zero);
  EXPECT_EQ(refusal({group(0, 1.0)}, {}),
            "parameter group 0 (" + one + ") was not saved; saved groups: none");
  EXPECT_EQ(refusal({group(0, 1.0)}, {group(0, 1.0), group(1, 1.0)}),
            "parameter group 0 (" + one +
                ") was saved twice, as groups 0 and 1; more settings are needed to tell groups apart");
  EXPECT_EQ(
      refusal({group(0, 1.0), group(1, 1.0)}, {group(0, 1.0)}),
      "parameter groups 0 and 1 are alike (" + one + "); more settings are needed to tell groups apart");
  StateDict two = group(0, 1.0);
  two["params"] = StateList{0, 1};
  EXPECT_EQ(
      refusal({two}, {group(0, 1.0)}),
      "parameter group 0: its params are list of 2, of the saved group list of 1; they must be equally many");
  EXPECT_EQ(refusal({group(0, 1.0)}, {7}), "saved parameter group 0 is int; it must be a dict");
  EXPECT_EQ(
      refusal({group(0, 1.0)}, {StateDict{{"wd_mult", StateList{}}}}),
      "saved parameter group 0: wd_mult is list of 0; a setting that tells groups apart must be a number, "
      "bool, text or None");
  // Saved groups that nobody asks for are filtered out, alike or not.
  EXPECT_EQ(refusal({group(0, 1.0)}, {group(5, 0.0), group(6, 0.0), group(0, 1.0)}), "accepted");
}

TEST(CommonStep, ErrorsNameTwoParameters) {
  EXPECT_EQ(
      extract_common_per_param_step(
          {{"0", StateDict{}}, {"1", StateDict{{"step", 3}}}, {"2", StateDict{{"step", 4}}}})
          .error()
          .text(),
      "the step of parameter 1 is 3, of parameter 2 4; this format has one for all, and they must be equal");
  EXPECT_EQ(extract_common_per_param_step({{"0", 3}}).error().text(),
            "the state of parameter 0 is int; it must be a dict");
  EXPECT_FALSE(extract_common_per_param_step({{"0", StateDict{{"step", "3"}}}}));
  // torch's Adam keeps a tensor.
  const StateDict torch{{"0", StateDict{{"step", at::full({}, 3.0f)}}}, {"1", StateDict{{"step", 3}}}};
  EXPECT_EQ(**extract_common_per_param_step(torch), 3);
  EXPECT_FALSE(extract_common_per_param_step({{"0", StateDict{{"step", at::full({}, 2.5f)}}}}));
}

TEST(ProxyDict, IsAViewInOrder) {
  StateDict first{{"b", 1}, {"a", 2}}, none, last{{"a", 3}};
  ProxyDict proxy({&first, &none, &last});
  EXPECT_EQ(proxy.keys(), (std::vector<ProxyDict::Key>{{0, "b"}, {0, "a"}, {2, "a"}}));
  EXPECT_EQ(proxy.size(), 3u);
  std::int64_t sum = 0;
  for (const auto& [key, value] : proxy) sum += *value->get<std::int64_t>();
  EXPECT_EQ(sum, 6);
  EXPECT_TRUE(proxy.contains({2, "a"}));
  EXPECT_FALSE(proxy.contains({1, "a"}));
  EXPECT_TRUE((proxy[{9, "a"}].none()));
  EXPECT_TRUE(none.empty());  // reading added nothing
  proxy.set({1, "x"}, 4);
  EXPECT_EQ(none.integer("x").value(), 4);
  EXPECT_EQ(proxy.items()[2].second, none.find("x"));
  EXPECT_TRUE(ProxyDict({}).empty());
  EXPECT_EQ(ProxyDict({}).begin(), ProxyDict({}).end());
}

}  // namespace
}  // namespace plumbline
