#include "engine/config/loader.h"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/config/explain.h"
#include "engine/config/options.h"
#include "tests/engine/config/config_support.h"

namespace plumbline {
namespace {

TEST(Loader, NothingGivenIsAllDefaults) {
  const LoadedConfig all = loaded({});
  for (const Option& option : options()) {
    EXPECT_EQ(option.get(all.config), option.default_text());
    EXPECT_FALSE(all.origins.given(option.name()));
    EXPECT_EQ(all.origins.of(option.name()).text, "default");
  }
}

TEST(Loader, EachLayerWinsOverTheOneBefore) {
  const TemporaryFile file("[parallel]\npp = 2\ndp = 2\n\n[schedule]\nmicrobatches = 2\nchunks = 2\n");
  const LoadedConfig out =
      loaded({file.path(), "-m", "5"},
             {{"PLUMBLINE_PARALLEL_DP", "3"}, {"PLUMBLINE_SCHEDULE_MICROBATCHES", "4"}, {"HOME", "x"}});
  EXPECT_EQ(out.config.parallel.pp, 2);
  EXPECT_EQ(out.config.parallel.dp, 3);
  EXPECT_EQ(out.config.schedule.microbatches, 5);
  EXPECT_EQ(out.origins.of("parallel.pp").text, file.path() + ":2");
  EXPECT_EQ(out.origins.of("parallel.dp").text, "environment PLUMBLINE_PARALLEL_DP");
  EXPECT_EQ(out.origins.of("schedule.microbatches").text, "-m");
  EXPECT_EQ(out.origins.of("schedule.chunks").where.line, 7);
  EXPECT_EQ(out.file, file.path());
}

TEST(Loader, FlagsCountInCommandOrder) {
  EXPECT_EQ(loaded({"--pp", "2", "--set", "parallel.pp=3"}).config.parallel.pp, 3);
  EXPECT_EQ(loaded({"--set", "parallel.pp=3", "--pp=2"}).config.parallel.pp, 2);
  EXPECT_EQ(loaded({"--fp16", "--bf16"}).config.train.precision, Precision::kBf16);
}

TEST(Loader, RepeatedFlagsAddToALowerLayersList) {
  const TemporaryFile file("[time]\nslow = [\"rank=0:2\", \"rank=1:3\"]\n");
  const auto slow = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), file.path());
    return option_text::SlowText::print(loaded(flags).config.time.slow);
  };
  EXPECT_EQ(slow({"--slow", "rank=2:4", "--slow", "rank=1:5"}), "rank=0:2,rank=1:5,rank=2:4");
  EXPECT_EQ(slow({"--set", "time.slow=rank=2:4"}), "rank=2:4");
  EXPECT_EQ(slow({"--set", "time.slow="}), "");
}

TEST(Loader, GlobalBatchSizeAndMicrobatchesReplaceEachOther) {
  const TemporaryFile file("[schedule]\nmicrobatches = 8\n");
  const LoadedConfig batch = loaded({file.path(), "--global-batch-size", "12"});
  EXPECT_EQ(batch.config.schedule.global_batch_size, 12);
  EXPECT_FALSE(batch.origins.given("schedule.microbatches"));
  const TemporaryFile other("[schedule]\nglobal_batch_size = 12\n");
  const LoadedConfig micro = loaded({other.path(), "-m", "3"});
  EXPECT_EQ(micro.config.schedule.global_batch_size, 0);
  EXPECT_EQ(micro.config.schedule.microbatches, 3);
}

TEST(Loader, AWordMayBeTheScheduleItself) {
  const LoadedConfig out = loaded({"my.csv", "--pp", "2"});
  EXPECT_EQ(out.config.schedule.kind, ScheduleKind::kCsv);
  EXPECT_EQ(out.config.schedule.csv, "my.csv");
  EXPECT_EQ(out.origins.of("schedule.csv").text, "argument my.csv");
}

TEST(Loader, RefusesASecondFileAndAMissingOne) {
  const TemporaryFile file("");
  EXPECT_NE(refusal({file.path(), "other.toml"}).find("unexpected argument 'other.toml'"), std::string::npos);
  const Result<LoadedConfig> missing = load({"no/such/file.toml"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
}

TEST(Loader, BadValuesNameTheirPlace) {
  const TemporaryFile file("[schedule]\n  p2p = \"bached\"\n");
  EXPECT_EQ(refusal({file.path()})
                .find(file.path() + ":2:3: schedule.p2p: 'bached' is not one of batched, separate, flush, "
                                    "overlap, deferred — did you "
                                    "mean 'batched'?"),
            0u);
  EXPECT_EQ(refusal({"--pp", "four"}).find("--pp: parallel.pp: 'four' is not a whole number"), 0u);
  EXPECT_EQ(
      refusal({}, {{"PLUMBLINE_TRAIN_SEED", "x"}}).find("environment PLUMBLINE_TRAIN_SEED: train.seed: 'x'"),
      0u);
}

TEST(Loader, EnvironmentVariablesOfASectionMustExist) {
  EXPECT_EQ(
      refusal({}, {{"PLUMBLINE_PARALLEL_PPP", "2"}}),
      "environment variable PLUMBLINE_PARALLEL_PPP names no option — did you mean PLUMBLINE_PARALLEL_PP?");
  EXPECT_FALSE(load({}, {{"PLUMBLINE_LOSS_SCALE_COLOUR", "red"}}));
  EXPECT_TRUE(loaded({}, {{"PLUMBLINE_ENGINE", "x"}}).warnings.empty());
  const LoadedConfig near = loaded({}, {{"PLUMBLINE_PARALEL_PP", "2"}});
  ASSERT_EQ(near.warnings.size(), 1u);
  EXPECT_NE(near.warnings[0].find("did you mean PLUMBLINE_PARALLEL_PP?"), std::string::npos);
}

TEST(Loader, ProcessEnvironmentHasOurVariablesOnly) {
  ::setenv("PLUMBLINE_MODEL_HEADS", "8", 1);
  const Environment environment = process_environment();
  ::unsetenv("PLUMBLINE_MODEL_HEADS");
  EXPECT_EQ(environment.at("PLUMBLINE_MODEL_HEADS"), "8");
  for (const auto& entry : environment) EXPECT_EQ(entry.first.find("PLUMBLINE_"), 0u);
}

// One value for an option, different from most others.
std::string some_value(const Option& option) {
  switch (option.type) {
    case OptionType::kSwitch:
      return *rc::gen::element<std::string>("true", "false");
    case OptionType::kChoice:
      return *rc::gen::elementOf(option.choices);
    case OptionType::kText:
      if (option.name() == "sim.send") return "eager:2MiB";
      if (option.name() == "sim.progress") return "split:" + std::to_string(*rc::gen::inRange(1, 99));
      return "word" + std::to_string(*rc::gen::inRange(0, 99));
    case OptionType::kBandwidth:
      return std::to_string(*rc::gen::inRange(1, 999)) + "GB/s";
    case OptionType::kDuration:
    case OptionType::kDurations:
      return std::to_string(*rc::gen::inRange(1, 999)) + "ns";
    case OptionType::kList:
      return option.set(*std::make_unique<RunConfig>(), "rank=1:2") ? "rank=1:2" : "";
    default:
      return std::to_string(*rc::gen::inRange(1, 999));
  }
}

// Whatever layers give a value, the highest one is kept, with its origin.
RC_GTEST_PROP(Loader, PrecedenceHoldsForEveryOption, ()) {
  const Option& option = *rc::gen::elementOf(options());
  const bool in_file = *rc::gen::arbitrary<bool>();
  const bool in_environment = *rc::gen::arbitrary<bool>();
  const bool in_flags = *rc::gen::arbitrary<bool>();
  LoadedConfig out;
  std::string expected = option.default_text();
  std::string origin = "default";
  const auto give = [&](Layer layer, const std::string& name) {
    const std::string value = some_value(option);
    RC_ASSERT(apply_assignments({{&option, value, Origin{layer, name, {}}, false}}, out).has_value());
    RunConfig alone;
    RC_ASSERT(option.set(alone, value).has_value());
    expected = option.get(alone);
    origin = name;
  };
  if (in_file) give(Layer::kFile, "file");
  if (in_environment) give(Layer::kEnvironment, "environment");
  if (in_flags) give(Layer::kCommandLine, "flag");
  RC_ASSERT(option.get(out.config) == expected);
  RC_ASSERT(out.origins.of(option.name()).text == origin);
}

// The same value written in the file, in the environment, with --set and with each flag gives the same
// configuration.
RC_GTEST_PROP(Loader, EverySourceMeansTheSame, ()) {
  const Option& option = *rc::gen::elementOf(options());
  const std::string value = some_value(option);
  RunConfig direct;
  RC_ASSERT(option.set(direct, value).has_value());
  const std::string expected = config_toml(direct);
  RC_ASSERT(config_toml(loaded({"--set", option.name() + "=" + value}).config) == expected);
  RC_ASSERT(config_toml(loaded({}, {{option.environment(), value}}).config) == expected);
  const TemporaryFile file(expected);
  RC_ASSERT(config_toml(loaded({file.path()}).config) == expected);
  for (std::string flag : option.flags) {
    if (option.repeatable() && value.empty()) continue;
    RC_ASSERT(config_toml(loaded({flag + "=" + value}).config) == expected);
    std::replace(flag.begin() + 2, flag.end(), '-', '_');
    RC_ASSERT(config_toml(loaded({flag + "=" + value}).config) == expected);
    if (option.type != OptionType::kSwitch) RC_ASSERT(config_toml(loaded({flag, value}).config) == expected);
  }
}

}  // namespace
}  // namespace plumbline
