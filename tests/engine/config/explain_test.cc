#include "engine/config/explain.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/config/options.h"
#include "tests/engine/config/config_support.h"

namespace plumbline {
namespace {

TEST(Explain, OneRowAnOption) {
  const LoadedConfig given = loaded({"--pp", "4"}, {{"PLUMBLINE_PARALLEL_DP", "2"}});
  const std::vector<ExplainRow> rows = explain(given);
  ASSERT_EQ(rows.size(), options().size());
  const auto row = [&](const std::string& option) {
    for (const ExplainRow& one : rows) {
      if (one.option == option) return one.value + " " + one.origin;
    }
    return std::string();
  };
  EXPECT_EQ(row("parallel.pp"), "4 --pp");
  EXPECT_EQ(row("parallel.dp"), "2 environment PLUMBLINE_PARALLEL_DP");
  EXPECT_EQ(row("parallel.tp"), "1 default");
}

TEST(Explain, DerivedValuesSaySo) {
  const LoadedConfig given = loaded({"--pp", "4", "--global-batch-size", "8"});
  const Result<RunConfig> valid = validate(given.config, given.origins, Purpose::kCheck);
  ASSERT_TRUE(valid);
  const LoadedConfig shown = with_derived(given, *valid);
  EXPECT_EQ(shown.origins.of("schedule.group_size").text, "derived");
  EXPECT_EQ(shown.origins.of("schedule.microbatches").text,
            "derived from schedule.global_batch_size=8, --global-batch-size");
  EXPECT_EQ(shown.origins.of("schedule.global_batch_size").text, "default");
  EXPECT_EQ(shown.config.schedule.microbatches, 8);
}

TEST(Explain, TomlLoadsBack) {
  const LoadedConfig given =
      loaded({"--pp", "4", "--vp", "2", "--slow", "rank=1:1.5", "--link", "0-1:10GB/s:5us", "--fp16",
              "--data", "a \"quoted\" \\ name", "--send", "eager:2MiB", "--forward-time", "1ms,2ms",
              "--inject-overflow", "rank=0:step=1", "--seed", "0xffffffffffffffff"});
  const std::string text = config_toml(given.config);
  const TemporaryFile file(text);
  EXPECT_EQ(config_toml(loaded({file.path()}).config), text);
}

TEST(Explain, JsonIsTyped) {
  const LoadedConfig given = loaded({"--pp", "4", "--launch-blocking"});
  const nlohmann::json document = nlohmann::json::parse(config_json(given));
  EXPECT_EQ(document["plumbline"], 1);
  EXPECT_EQ(document["config"]["parallel"]["pp"], 4);
  EXPECT_EQ(document["config"]["sim"]["launch_blocking"], true);
  EXPECT_EQ(document["config"]["optimizer"]["lr"], 0.001);
  EXPECT_EQ(document["config"]["schedule"]["kind"], "1f1b");
  EXPECT_EQ(document["origins"].size(), 2u);
  EXPECT_EQ(document["origins"]["parallel.pp"], "--pp");
}

// Renew the page with: plumbline config --docs > docs/config.md
TEST(Explain, TheDocumentationIsTheTable) {
  const Result<std::string> page = read_file(PLUMBLINE_TEST_DATA "/../docs/config.md");
  ASSERT_TRUE(page) << page.error().text();
  EXPECT_TRUE(*page == config_docs())
      << "docs/config.md is out of date: plumbline config --docs > docs/config.md";
}

}  // namespace
}  // namespace plumbline
