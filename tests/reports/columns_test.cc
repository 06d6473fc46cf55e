#include "reports/html/columns.h"

#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace plumbline {
namespace {

TEST(Columns, EdgeValuesSurvive) {
  const std::vector<std::int64_t> values{0,
                                         1,
                                         -1,
                                         63,
                                         64,
                                         -64,
                                         -65,
                                         std::numeric_limits<std::int64_t>::max(),
                                         std::numeric_limits<std::int64_t>::min()};
  Column column("x");
  for (const std::int64_t value : values) column.add(value);
  const auto back = read_column(column.bytes(), column.count());
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, values);
}

TEST(Columns, CutColumnsAreErrors) {
  Column column("x");
  column.add(1000);
  EXPECT_FALSE(read_column(column.bytes().substr(0, 1), 1));
  EXPECT_FALSE(read_column(column.bytes(), 2));
}

RC_GTEST_PROP(Columns, RoundTrip, (std::vector<std::int64_t> values, std::string text)) {
  Column column("x");
  for (const std::int64_t value : values) column.add(value);
  const auto back = read_column(column.bytes(), static_cast<std::int64_t>(values.size()));
  RC_ASSERT(back.has_value());
  RC_ASSERT(*back == values);
  const auto unzipped = gunzip(gzip(text));
  RC_ASSERT(unzipped.has_value());
  RC_ASSERT(*unzipped == text);
  const auto decoded = from_base64(base64(text));
  RC_ASSERT(decoded.has_value());
  RC_ASSERT(*decoded == text);
}

TEST(Columns, Base64KnownAnswers) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_FALSE(from_base64("Zm9*"));
  EXPECT_FALSE(gunzip("not gzip"));
  EXPECT_FALSE(gunzip(gzip("cut short").substr(0, 15)));
}

}  // namespace
}  // namespace plumbline
