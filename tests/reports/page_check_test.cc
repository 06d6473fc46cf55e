// Opens pages in headless Chromium where there is one (page_check.sh).
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "engine/base/text.h"
#include "reports/html.h"
#include "tests/reports/sample_record.h"
#include "tests/reports/sample_verdict.h"

namespace plumbline {
namespace {

TEST(PageCheck, PagesWorkInABrowser) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "plumbline_pages";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto keep = [&](const std::string& name, const std::string& page) {
    ASSERT_TRUE(write_file((folder / name).string(), page));
  };
  sample::Shape shape;
  shape.chunks = 2;
  shape.steps = 3;
  shape.latency = 50'000;
  shape.tail = shape.losses = true;
  keep("interleaved.html", report_html(sample::record_of(shape), sample::holding_verdict()));
  keep("deadlock.html", report_html(sample::record_of({}), sample::deadlock_verdict()));
  keep("empty.html", report_html(RunRecord{}, std::nullopt));

  const std::string command = "sh " + std::string(PLUMBLINE_TEST_DATA) + "/reports/page_check.sh " +
                              folder.string() + " >" + (folder / "log").string();
  const int status = std::system(command.c_str());
  const auto log = read_file((folder / "log").string());
  const std::string said = log ? *log : std::string("no output");
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << said;
  EXPECT_EQ(WEXITSTATUS(status), 0) << said;
}

}  // namespace
}  // namespace plumbline
