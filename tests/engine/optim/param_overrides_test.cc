#include "engine/optim/param_overrides.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plumbline {
namespace {

ParameterPtr parameter(const std::string& name, std::vector<std::int64_t> shape) {
  auto made = std::make_shared<Parameter>();
  made->name = name;
  made->value = at::zeros(shape);
  return made;
}

// A small model: embedding, one layer with a bias and a norm, two experts.
std::vector<std::vector<ParameterPtr>> small_model() {
  std::vector<std::vector<ParameterPtr>> chunks{
      {parameter("embedding.tokens", {4, 2}), parameter("layers.0.w", {2, 2}),
       parameter("layers.0.bias", {2})},
      {parameter("layers.1.norm.weight", {2}), parameter("layers.1.experts.0", {2, 2}),
       parameter("layers.1.experts.1.bias", {1, 2})}};
  chunks[0][0]->embedding_or_output = true;
  chunks[1][1]->expert = true;
  chunks[1][2]->expert = true;
  return chunks;
}

std::string names(const ParamGroup& group) {
  std::string out;
  for (const ParameterPtr& one : group.params) out += (out.empty() ? "" : " ") + one->name;
  return out;
}

TEST(ParamOverrides, NoWeightDecayForBiasesAndOneDimension) {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  const auto groups = build_param_groups(small_model(), config, {});
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 4u);
  EXPECT_EQ(names((*groups)[0]), "embedding.tokens layers.0.w");
  EXPECT_EQ(names((*groups)[1]), "layers.1.experts.0");
  EXPECT_EQ(names((*groups)[2]), "layers.0.bias layers.1.norm.weight");
  EXPECT_EQ(names((*groups)[3]), "layers.1.experts.1.bias");  // by its name: it has two dimensions
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_EQ((*groups)[i].wd_mult, 1.0);
    EXPECT_EQ((*groups)[i].weight_decay, 0.1);
  }
  for (const std::size_t i : {2u, 3u}) {
    EXPECT_EQ((*groups)[i].wd_mult, 0.0);
    EXPECT_EQ((*groups)[i].weight_decay, 0.0);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*groups)[i].is_expert_parallel, i % 2 == 1);
    EXPECT_EQ((*groups)[i].lr_mult, 1.0);
    EXPECT_EQ((*groups)[i].is_decoupled_lr, false);
    EXPECT_FALSE((*groups)[i].max_lr.has_value());
  }
}

TEST(ParamOverrides, DecoupledLearningRateForEmbeddingAndOutput) {
  OptimizerConfig config;
  config.decoupled_lr = 5e-4;
  const auto groups = build_param_groups(small_model(), config, {});
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 5u);
  const auto found = std::find_if(groups->begin(), groups->end(),
                                  [](const ParamGroup& group) { return group.is_decoupled_lr == true; });
  ASSERT_NE(found, groups->end());
  EXPECT_EQ(names(*found), "embedding.tokens");
  EXPECT_EQ(found->max_lr, 5e-4);
  EXPECT_FALSE(found->min_lr.has_value());
  config.decoupled_min_lr = 1e-6;
  const auto again = build_param_groups(small_model(), config, {});
  ASSERT_TRUE(again);
  int with_minimum = 0;
  for (const ParamGroup& group : *again) with_minimum += group.min_lr == 1e-6 ? 1 : 0;
  EXPECT_EQ(with_minimum, 1);
}

TEST(ParamOverrides, TheProviderBeatsTheStandardRulesAndTheConfiguration) {
  OptimizerConfig config;
  config.decoupled_lr = 5e-4;
  ParamRule rule{"embedding", {{"embedding.*"}}, {}};
  rule.gives.max_lr = 7e-4;
  rule.gives.beta2 = 0.95;
  ParamRule bias{"this bias decays", {{"layers.0.bias"}}, {}};
  bias.gives.wd_mult = 0.5;
  const std::vector<ParamRule> standard = standard_rules(config);
  const auto chunks = small_model();
  const auto embedding = override_of(*chunks[0][0], {rule, bias}, standard);
  ASSERT_TRUE(embedding);
  EXPECT_EQ(embedding->text(), "max_lr=0.0007 beta2=0.95 is_decoupled_lr=true");
  const auto decayed = override_of(*chunks[0][2], {rule, bias}, standard);
  ASSERT_TRUE(decayed);
  EXPECT_EQ(decayed->text(), "wd_mult=0.5");
  const auto groups = build_param_groups(chunks, config, {rule, bias});
  ASSERT_TRUE(groups);
  for (const ParamGroup& group : *groups) {
    const bool is_embedding = names(group) == "embedding.tokens";
    EXPECT_EQ(group.beta2, is_embedding ? 0.95 : config.beta2) << names(group);
    EXPECT_EQ(group.lr, is_embedding ? 7e-4 : config.lr) << names(group);
  }
}

TEST(ParamOverrides, RulesThatContradictEachOtherAreRefused) {
  ParamRule one{"first", {{"layers.*"}}, {}}, two{"second", {{"*.w"}}, {}};
  one.gives.lr_mult = 2.0;
  two.gives.lr_mult = 3.0;
  const auto groups = build_param_groups(small_model(), {}, {one, two});
  ASSERT_FALSE(groups);
  EXPECT_NE(groups.error().message.find("layers.0.w: rule 'first' gives lr_mult=2, rule 'second' 3"),
            std::string::npos)
      << groups.error().message;
  two.gives.lr_mult = 2.0;  // agreeing is fine
  EXPECT_TRUE(build_param_groups(small_model(), {}, {one, two}));
  two.gives.lr_mult = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(build_param_groups(small_model(), {}, {two}));
}

TEST(ParamOverrides, EveryRankHasEveryGroup) {
  const auto model = small_model();
  std::vector<GroupKey> known;
  for (const auto& chunk : model) {
    const auto keys = group_keys({chunk}, {}, {});
    ASSERT_TRUE(keys);
    known.insert(known.end(), keys->begin(), keys->end());
  }
  std::vector<std::vector<ParamGroup>> by_rank;
  for (const auto& chunk : model) {
    auto groups = build_param_groups({chunk}, {}, {}, known);
    ASSERT_TRUE(groups);
    by_rank.push_back(std::move(*groups));
  }
  ASSERT_EQ(by_rank[0].size(), 4u);
  ASSERT_EQ(by_rank[1].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(by_rank[0][i].wd_mult, by_rank[1][i].wd_mult);
    EXPECT_EQ(by_rank[0][i].is_expert_parallel, by_rank[1][i].is_expert_parallel);
  }
  EXPECT_TRUE(by_rank[0][1].params.empty());
  EXPECT_TRUE(by_rank[1][0].params.empty());
}

TEST(ParamOverrides, Patterns) {
  EXPECT_TRUE(matches_pattern("*.bias", "a.b.bias"));
  EXPECT_FALSE(matches_pattern("*.bias", "a.biases"));
  EXPECT_TRUE(matches_pattern("layers.?.w*", "layers.3.w1"));
  EXPECT_FALSE(matches_pattern("layers.?.w*", "layers.13.w1"));
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_FALSE(matches_pattern("", "a"));
  EXPECT_TRUE(matches_pattern("**", ""));
  EXPECT_TRUE(matches_pattern("*a*b", "aabab"));
}

// The plain recursive definition.
bool matches_recursively(std::string_view p, std::string_view t) {
  if (p.empty()) return t.empty();
  if (p[0] == '*')
    return matches_recursively(p.substr(1), t) || (!t.empty() && matches_recursively(p, t.substr(1)));
  return !t.empty() && (p[0] == '?' || p[0] == t[0]) && matches_recursively(p.substr(1), t.substr(1));
}

RC_GTEST_PROP(ParamOverrides, PatternsMatchAsDefined, ()) {
  const auto text = *rc::gen::resize(8, rc::gen::container<std::string>(rc::gen::element('a', 'b')));
  const auto pattern =
      *rc::gen::resize(6, rc::gen::container<std::string>(rc::gen::element('a', 'b', '*', '?')));
  RC_ASSERT(matches_pattern(pattern, text) == matches_recursively(pattern, text));
}

}  // namespace
}  // namespace plumbline
