#include "engine/base/text.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

#include "engine/base/assert.h"
#include "engine/base/json_writer.h"
#include "engine/base/units.h"

namespace plumbline {
namespace {

TEST(Numbers, WholeTextOnly) {
  EXPECT_EQ(*parse_integer("-12"), -12);
  for (const char* bad : {"", " 1", "1 ", "1x", "+1", "9223372036854775808"})
    EXPECT_FALSE(parse_integer(bad)) << bad;
  EXPECT_EQ(*parse_unsigned("0xff"), 255u);
  for (const char* bad : {"", "-1", "0x", "18446744073709551616"}) EXPECT_FALSE(parse_unsigned(bad)) << bad;
  EXPECT_EQ(*parse_double("1e-3"), 1e-3);
  for (const char* bad : {"", "nan", "inf", "1,5", "1e999"}) EXPECT_FALSE(parse_double(bad)) << bad;
}

TEST(Units, AreReadAndRefused) {
  EXPECT_EQ(*parse_bytes("2MiB"), 2 << 20);
  EXPECT_EQ(*parse_bytes("1.5KiB"), 1536);
  EXPECT_EQ(*parse_bytes("2KB"), 2000);
  EXPECT_EQ(*parse_duration("1.5ms"), 1'500'000);
  EXPECT_EQ(*parse_duration("7"), 7);
  EXPECT_EQ(*parse_bandwidth("10GB/s"), 1e10);
  for (const char* bad : {"", "MiB", "-1", "2mib", "0.3", "99999999999GB"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
  EXPECT_FALSE(parse_bandwidth("0GB/s"));
  EXPECT_EQ(transfer_time(1000, 1e9), 1000);
  EXPECT_EQ(transfer_time(1, 3e9), 1);  // rounded up
  EXPECT_EQ(transfer_time(1000, 0.0), 0);
}

TEST(Nearest, FindsTyposAndNothingElse) {
  const std::vector<std::string> names{"microbatches", "pipeline-model-parallel-size", "pp"};
  EXPECT_EQ(nearest("microbathces", names), "microbatches");
  EXPECT_EQ(nearest("pipeline_model_parallel_size", names), "pipeline-model-parallel-size");
  EXPECT_EQ(nearest("checkpoint", names), "");
}

TEST(Files, ErrorsNameThePath) {
  const auto missing = read_file("/nonexistent/file");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  EXPECT_NE(missing.error().text().find("/nonexistent/file"), std::string::npos);
  EXPECT_FALSE(write_file("/nonexistent/file", "x"));
}

RC_GTEST_PROP(Numbers, IntegersRoundTrip, (std::int64_t value)) {
  RC_ASSERT(*parse_integer(std::to_string(value)) == value);
}

// What the writer writes, another library reads back.
RC_GTEST_PROP(Json, ReadsBack, (std::map<std::string, std::int64_t> numbers, std::vector<double> list)) {
  JsonWriter json;
  json.begin_object();
  std::string printable;
  for (const auto& [name, number] : numbers) {
    printable.clear();
    for (const char c : name) printable += static_cast<char>(c & 0x7f);  // JSON is UTF-8
    json.field("k" + std::to_string(number) + printable, number);
  }
  json.key("list").begin_array();
  for (const double value : list) json.value(value);
  json.end_array().end_object();
  const auto read = nlohmann::json::parse(json.text(), nullptr, false);
  RC_ASSERT(!read.is_discarded());
  RC_ASSERT(read.at("list").size() == list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto& got = read["list"][i];
    const bool same = got.is_null() ? !std::isfinite(list[i]) : got.get<double>() == list[i];
    RC_ASSERT(same);
  }
}

TEST(AssertDeathTest, PrintsConditionPlaceAndReproduction) {
  EXPECT_EXIT(
      {
        set_reproduction("plumbline check cfg.toml");
        PL_ASSERT_MSG(1 + 1 == 3, "arithmetic");
      },
      testing::ExitedWithCode(101),
      "1 \\+ 1 == 3 does not hold at .*\n.*arithmetic\n.*reproduce: plumbline check cfg.toml");
}

}  // namespace
}  // namespace plumbline
