#include "engine/optim/loss_scaler.h"

#include <cstdlib>
#include <string>

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
// the update after which it showed; the first update always is.
void replay(const Json& line) {
  Result<LossScaler> scaler = LossScaler::dynamic(options_of(line));
  ASSERT_TRUE(scaler) << scaler.error().text();
  const std::string found = line["found_inf"].get<std::string>();
  const Json& changes = line["scale_changes"];
  std::size_t next = 0;
  float scale = scaler->scale();
  for (std::size_t i = 0; i < found.size(); ++i) {
    scaler->update(found[i] == '1');
    if (next < changes.size() && changes[next][0].get<std::size_t>() == i) scale = hex(changes[next++][1]);
    ASSERT_EQ(scaler->scale(), scale) << "after update " << i << " of " << line.dump();
    ASSERT_EQ(scaler->growth_tracker(), line["growth_tracker"][i].get<std::int64_t>()) << i;
    ASSERT_EQ(scaler->hysteresis_tracker(), line["hysteresis_tracker"][i].get<std::int64_t>()) << i;
  }
  EXPECT_EQ(next, changes.size()) << line.dump();
  EXPECT_EQ(scaler->scale(), hex(line["final_scale"]));
  EXPECT_EQ(scaler->inverse(), hex(line["final_inv"]));
}

TEST(LossScaler, EqualsMegatronOnEveryRecordedTrace) {
  EXPECT_EQ(test::for_each_line("oracles/megatron/dynamic_grad_scaler.jsonl.gz", replay), 624);
}

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

}  // namespace
}  // namespace plumbline
