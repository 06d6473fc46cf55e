#include "engine/optim/loss_scaler.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

float hex(const Json& text) {
  return static_cast<float>(std::strtod(text.get<std::string>().c_str(), nullptr));
}

LossScaler::Dynamic options_of(const Json& line) {
  LossScaler::Dynamic options;
  options.initial = std::strtod(line["initial"].get<std::string>().c_str(), nullptr);
  options.minimum = std::strtod(line["min"].get<std::string>().c_str(), nullptr);
  options.growth_factor = line["growth"].get<double>();
  options.backoff_factor = line["backoff"].get<double>();
  options.window = line["interval"].get<int>();
  options.hysteresis = line["hysteresis"].get<int>();
  options.capped = false;
  return options;
}

// One recorded trace: scale and trackers after every update, compared bit for bit. A change is listed with
// the update after which it showed; the first update always is. With the cap, an infinite scale of the record
// must be the last finite one here, and what comes after it cannot be compared but for the trackers. Returns
// whether the record reaches infinity.
bool replay(const Json& line, bool capped) {
  LossScaler::Dynamic options = options_of(line);
  options.capped = capped;
  Result<LossScaler> scaler = LossScaler::dynamic(options);
  EXPECT_TRUE(scaler) << scaler.error().text();
  const std::string found = line["found_inf"].get<std::string>();
  const Json& changes = line["scale_changes"];
  std::size_t next = 0;
  float scale = scaler->scale(), last_finite = scale;
  bool infinite = false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    scaler->update(found[i] == '1');
    if (next < changes.size() && changes[next][0].get<std::size_t>() == i) scale = hex(changes[next++][1]);
    if (std::isfinite(scale)) last_finite = scale;
    const bool first = !std::isfinite(scale) && !infinite;
    infinite = infinite || !std::isfinite(scale);
    if (!infinite || !capped)
      EXPECT_EQ(scaler->scale(), scale) << "after update " << i << " of " << line.dump();
    if (first && capped) {
      EXPECT_EQ(scaler->scale(), last_finite) << "after update " << i << " of " << line.dump();
      EXPECT_TRUE(scaler->facts().capped);
    }
    EXPECT_EQ(scaler->growth_tracker(), line["growth_tracker"][i].get<std::int64_t>()) << i;
    EXPECT_EQ(scaler->hysteresis_tracker(), line["hysteresis_tracker"][i].get<std::int64_t>()) << i;
    EXPECT_EQ(scaler->facts().broken, !std::isfinite(scaler->scale()) || !std::isfinite(scaler->inverse()));
  }
  EXPECT_EQ(next, changes.size()) << line.dump();
  if (infinite && capped) {
    EXPECT_TRUE(std::isfinite(scaler->scale())) << line.dump();
    return infinite;
  }
  EXPECT_EQ(scaler->scale(), hex(line["final_scale"]));
  EXPECT_EQ(scaler->inverse(), hex(line["final_inv"]));
  return infinite;
}

// Which lines, counted from 1, reach an infinite scale.
std::vector<int> replay_all(bool capped) {
  std::vector<int> infinite;
  int number = 0;
  const int lines =
      test::for_each_line("oracles/megatron/dynamic_grad_scaler.jsonl.gz", [&](const Json& line) {
        ++number;
        if (replay(line, capped)) infinite.push_back(number);
      });
  EXPECT_EQ(lines, 624);
  return infinite;
}

const std::vector<int> kInfinite{31, 91, 92, 93, 121, 607, 608, 609, 610};

TEST(LossScaler, EqualsMegatronOnEveryRecordedTrace) { EXPECT_EQ(replay_all(false), kInfinite); }

TEST(LossScaler, WithTheCapOnlyTheInfiniteTracesDiffer) { EXPECT_EQ(replay_all(true), kInfinite); }

TEST(LossScaler, RefusesWhatMegatronRefuses) {
  const int lines =
      test::for_each_line("oracles/megatron/grad_scaler_bad_args.jsonl.gz", [](const Json& line) {
        const Json& args = line["args"];
        LossScaler::Dynamic options;
        options.initial = args[0].get<double>();
        options.minimum = args[1].get<double>();
        options.growth_factor = args[2].get<double>();
        options.backoff_factor = args[3].get<double>();
        options.window = args[4].get<int>();
        options.hysteresis = args[5].get<int>();
        EXPECT_EQ(LossScaler::dynamic(options).has_value(), line["error"].is_null()) << line.dump();
      });
  EXPECT_EQ(lines, 9);
}

TEST(LossScaler, TheCapKeepsTheScaleFinite) {
  LossScaler::Dynamic options;
  options.initial = 0x1p127;
  options.window = 1;
  Result<LossScaler> scaler = LossScaler::dynamic(options);
  ASSERT_TRUE(scaler);
  scaler->update(false);
  EXPECT_EQ(scaler->scale(), 0x1p127f);
  scaler->update(true);
  scaler->update(true);
  EXPECT_EQ(scaler->scale(), 0x1p126f);
}

TEST(LossScaler, IsChosenAsMegatronChooses) {
  LossScaleConfig config;
  EXPECT_EQ(LossScaler::of(config, Precision::kFp16)->kind(), LossScaler::Kind::kDynamic);
  EXPECT_EQ(LossScaler::of(config, Precision::kBf16)->kind(), LossScaler::Kind::kNone);
  EXPECT_FALSE(LossScaler::of(config, Precision::kFp32)->checks());
  config.constant = 128.0;
  Result<LossScaler> scaler = LossScaler::of(config, Precision::kBf16);
  ASSERT_TRUE(scaler);
  EXPECT_TRUE(scaler->checks());
  scaler->update(true);
  EXPECT_EQ(scaler->scale(), 128.0f);
}

LossScaler make(const LossScaler::Dynamic& options) {
  Result<LossScaler> scaler = LossScaler::dynamic(options);
  EXPECT_TRUE(scaler) << scaler.error().text();
  return *scaler;
}

// Scales after each update of a string of found_inf.
std::vector<float> scales(LossScaler& scaler, std::string_view found) {
  std::vector<float> out;
  for (const char c : found) {
    scaler.update(c == '1');
    out.push_back(scaler.scale());
  }
  return out;
}

LossScaler::Dynamic rule(ScalerRule rule, double initial, int window, int hysteresis) {
  LossScaler::Dynamic options;
  options.rule = rule;
  options.initial = initial;
  options.window = window;
  options.hysteresis = hysteresis;
  return options;
}

TEST(LossScaler, TakesRuleAndCapFromTheConfiguration) {
  LossScaleConfig config;
  config.initial = 0x1p127;
  config.window = 1;
  config.capped = false;
  Result<LossScaler> open = LossScaler::of(config, Precision::kFp16);
  open->update(false);
  EXPECT_TRUE(std::isinf(open->scale()));
  config.rule = ScalerRule::kTorch;  // caps by itself
  Result<LossScaler> torch = LossScaler::of(config, Precision::kFp16);
  torch->update(false);
  EXPECT_EQ(torch->scale(), 0x1p127f);
  torch->update(true);  // no hysteresis
  EXPECT_EQ(torch->scale(), 0x1p126f);
}

TEST(LossScaler, RefusesWhatSinglePrecisionCannotHold) {
  LossScaler::Dynamic options;
  options.initial = 1e39;
  EXPECT_EQ(LossScaler::dynamic(options).error().text(),
            "initial value of the loss scale is 1e+39; it must be above 0 and finite in single precision");
  options.initial = 1.0;
  options.minimum = 1e-50;
  EXPECT_FALSE(LossScaler::dynamic(options));
  EXPECT_FALSE(LossScaler::constant(std::numeric_limits<double>::infinity()));
}

// Public report L09: DeepSpeed's hysteresis delays the first halving, not the later ones.
TEST(LossScaler, ReportL09DeepSpeedSpendsItsHysteresisOnce) {
  LossScaler scaler = make(rule(ScalerRule::kDeepSpeed, 65536, 1000, 2));
  EXPECT_EQ(scales(scaler, "1111110"), (std::vector<float>{65536, 32768, 16384, 8192, 4096, 2048, 2048}));
}

// Public report L11, the reduced half: two ranks fed the same flag walk together.
TEST(LossScaler, ReportL11AgreedFlagsKeepRanksEqual) {
  LossScaler a = make(rule(ScalerRule::kMegatron, 65536, 2, 2)), b = a;
  std::vector<std::int64_t> hysteresis;
  std::vector<float> seen;
  for (const bool found : {false, false, true, true, false, false}) {
    a.update(found);
    b.update(found);
    seen.push_back(a.scale());
    hysteresis.push_back(a.hysteresis_tracker());
    EXPECT_EQ(a, b);
  }
  EXPECT_EQ(seen, (std::vector<float>{65536, 131072, 131072, 65536, 65536, 131072}));
  EXPECT_EQ(hysteresis, (std::vector<std::int64_t>{2, 2, 1, 0, 0, 2}));
  // Without the reduction rank 0 sees no overflow.
  LossScaler alone = make(rule(ScalerRule::kMegatron, 65536, 2, 2));
  EXPECT_EQ(scales(alone, "000000").back(), 524288.0f);
  EXPECT_NE(alone, a);
}

// Public report L17: growth at every step reaches infinity after 112 of them, unless it is capped.
TEST(LossScaler, ReportL17GrowthStopsAtTheLastFiniteScale) {
  const std::string clean(120, '0');
  for (const ScalerRule name : {ScalerRule::kMegatron, ScalerRule::kDeepSpeed, ScalerRule::kTorch}) {
    LossScaler capped = make(rule(name, 65536, 1, 1));
    const std::vector<float> seen = scales(capped, clean);
    EXPECT_EQ(seen[109], 0x1p126f);
    for (std::size_t i = 110; i < 120; ++i) EXPECT_EQ(seen[i], 0x1p127f);
    EXPECT_TRUE(capped.facts().capped);
    EXPECT_FALSE(capped.facts().broken);
  }
  LossScaler::Dynamic open = rule(ScalerRule::kMegatron, 65536, 1, 1);
  open.capped = false;
  LossScaler scaler = make(open);
  const std::vector<float> seen = scales(scaler, clean.substr(0, 112));
  EXPECT_EQ(seen[110], 0x1p127f);
  EXPECT_TRUE(std::isinf(seen[111]));
  EXPECT_TRUE(scaler.facts().broken);
  scaler.update(true);  // the skip that follows does not mend it
  EXPECT_TRUE(scaler.facts().broken);
}

TEST(LossScaler, ConsecutiveHysteresisComesBackWithACleanStep) {
  LossScaler::Dynamic options = rule(ScalerRule::kDeepSpeed, 1024, 1000, 2);
  LossScaler spent = make(options);
  EXPECT_EQ(scales(spent, "1010"), (std::vector<float>{1024, 1024, 512, 512}));
  options.consecutive_hysteresis = true;
  LossScaler restored = make(options);
  EXPECT_EQ(scales(restored, "101011"), (std::vector<float>{1024, 1024, 1024, 1024, 1024, 512}));
}

TEST(LossScaler, TorchHasNoFloorAndSaysWhenTheScaleIsUseless) {
  LossScaler scaler = make(rule(ScalerRule::kTorch, 1.0, 1000, 4));
  scales(scaler, std::string(126, '1'));
  EXPECT_EQ(scaler.scale(), 0x1p-126f);
  EXPECT_FALSE(scaler.facts().broken);
  scales(scaler, "11");  // 2^-128: its inverse is infinite
  EXPECT_TRUE(scaler.facts().broken);
  EXPECT_FALSE(scaler.facts().cannot_decrease);
  scales(scaler, std::string(30, '1'));
  EXPECT_EQ(scaler.scale(), 0.0f);
  EXPECT_EQ(scaler.facts().overflows_at_minimum, 7 + 1);
}

TEST(LossScaler, LivelockIsManyOverflowsAtTheMinimum) {
  for (const ScalerRule name : {ScalerRule::kMegatron, ScalerRule::kDeepSpeed}) {
    LossScaler scaler = make(rule(name, 4.0, 1000, 1));
    scales(scaler, "11");
    EXPECT_EQ(scaler.scale(), 1.0f);
    EXPECT_EQ(scaler.facts(), LossScaler::Facts{});
    scaler.update(true);
    EXPECT_EQ(scaler.facts().overflows_at_minimum, 1);
    EXPECT_TRUE(scaler.facts().cannot_decrease);  // where DeepSpeed raises
    EXPECT_FALSE(scaler.facts().livelock);
    scales(scaler, "11");
    EXPECT_FALSE(scaler.facts(4).livelock);
    EXPECT_TRUE(scaler.facts(3).livelock);
    scaler.update(false);
    EXPECT_EQ(scaler.facts(3), LossScaler::Facts{});
  }
  // With hysteresis left nothing was to decrease yet.
  LossScaler scaler = make(rule(ScalerRule::kDeepSpeed, 1.0, 1000, 2));
  scaler.update(true);
  EXPECT_FALSE(scaler.facts().cannot_decrease);
  EXPECT_EQ(scaler.facts().overflows_at_minimum, 1);
}

TEST(LossScaler, SavesMegatronsKeys) {
  LossScaler scaler = make(rule(ScalerRule::kMegatron, 1024, 8, 1));
  scales(scaler, "0111");
  const StateDict state = scaler.state_dict();
  EXPECT_EQ(first_difference(state, StateDict{{"scale", at::full({1}, 128.0f)},
                                              {"growth_tracker", 0},
                                              {"hysteresis_tracker", -2}}),
            "");
  EXPECT_TRUE(LossScaler::constant(8.0)->state_dict().empty());
  EXPECT_TRUE(LossScaler().state_dict().empty());
}

TEST(LossScaler, LoadingBringsTrackersIntoRangeAndSaysSo) {
  LossScaler scaler = make(rule(ScalerRule::kMegatron, 1024, 4, 2));
  const StateDict state{{"scale", 64.0}, {"growth_tracker", 9}, {"hysteresis_tracker", 3}};
  std::vector<std::string> notices;
  ASSERT_TRUE(scaler.load_state_dict(state, &notices));
  EXPECT_EQ(notices,
            (std::vector<std::string>{
                "the loss scale's growth_tracker was saved as 9 and is set to 3: the growth tracker 9 is "
                "past the window of 4 and would not meet it again before an overflow",
                "the loss scale's hysteresis_tracker was saved as 3 and is set to 2: the hysteresis is "
                "lower"}));
  EXPECT_EQ(scaler.hysteresis_tracker(), 2);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 128.0f);  // no stall
  EXPECT_FALSE(scaler.growth_stall({{"growth_tracker", 3}}));
  EXPECT_TRUE(scaler.growth_stall({{"growth_tracker", 4}}));
  ASSERT_TRUE(scaler.load_state_dict({{"scale", 1}, {"growth_tracker", -1}, {"hysteresis_tracker", -7}}));
  EXPECT_EQ(scaler.growth_tracker(), 0);
  EXPECT_EQ(scaler.hysteresis_tracker(), -7);
}

TEST(LossScaler, LoadingRaisesAScaleBelowTheMinimum) {
  LossScaler scaler = make(rule(ScalerRule::kMegatron, 1024, 4, 2));
  const StateDict state{{"scale", at::full({1}, 0.25f)}, {"growth_tracker", 0}, {"hysteresis_tracker", 2}};
  std::vector<std::string> notices;
  ASSERT_TRUE(scaler.load_state_dict(state, &notices));
  EXPECT_EQ(scaler.scale(), 1.0f);
  EXPECT_EQ(
      notices,
      (std::vector<std::string>{"the loss scale was saved as 0.25 and is set to 1: the minimum is higher"}));
  LossScaler torch = make(rule(ScalerRule::kTorch, 1024, 4, 2));
  ASSERT_TRUE(torch.load_state_dict(state));
  EXPECT_EQ(torch.scale(), 0.25f);
}

TEST(LossScaler, LoadingRefusesAndChangesNothing) {
  LossScaler scaler = make(rule(ScalerRule::kMegatron, 1024, 4, 2));
  scaler.update(false);
  const LossScaler before = scaler;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, infinity, std::nan(""), 1e39, 1e-60}) {
    const StateDict state{{"scale", bad}, {"growth_tracker", 0}, {"hysteresis_tracker", 1}};
    EXPECT_FALSE(scaler.load_state_dict(state)) << bad;
  }
  EXPECT_EQ(
      scaler.load_state_dict({{"scale", infinity}, {"growth_tracker", 0}, {"hysteresis_tracker", 1}})
          .error()
          .text(),
      "the saved loss scale is inf; it must be above 0 and finite in single precision; load without the "
      "scale's state to start anew");
  EXPECT_EQ(scaler.load_state_dict({{"scale", 1.0}, {"hysteresis_tracker", 1}}).error().text(),
            "the state has no \"growth_tracker\", which must be int");
  EXPECT_FALSE(
      scaler.load_state_dict({{"scale", at::ones({2})}, {"growth_tracker", 0}, {"hysteresis_tracker", 1}}));
  EXPECT_FALSE(scaler.load_state_dict({}));
  EXPECT_EQ(scaler, before);
}

TEST(LossScaler, AConstantScaleIgnoresAStateAndSaysSo) {
  LossScaler scaler = *LossScaler::constant(8.0);
  std::vector<std::string> notices;
  ASSERT_TRUE(scaler.load_state_dict({}, &notices));
  EXPECT_TRUE(notices.empty());
  ASSERT_TRUE(
      scaler.load_state_dict({{"scale", 2.0}, {"growth_tracker", 0}, {"hysteresis_tracker", 1}}, &notices));
  EXPECT_EQ(notices.size(), 1u);
  EXPECT_EQ(scaler.scale(), 8.0f);
}

}  // namespace
}  // namespace plumbline
