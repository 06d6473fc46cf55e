// The page as bytes: deterministic, closed to the network, and its data block decodes to the record's
// columns. How it looks and behaves is for page_check_test.cc and for eyes.
#include "reports/html.h"

#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "reports/html/columns.h"
#include "reports/html/page_data.h"
#include "tests/reports/sample_record.h"
#include "tests/reports/sample_verdict.h"

namespace plumbline {
namespace {

struct Block {
  nlohmann::json head;
  std::map<std::string, std::vector<std::int64_t>> columns;
};

Block block_of(const std::string& page) {
  const std::string open = "id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  const auto bytes = gunzip(*from_base64(page.substr(begin, page.find("</script>", begin) - begin)));
  EXPECT_TRUE(bytes);
  Block block;
  std::size_t size = 0;
  for (std::size_t k = 0; k < 4; ++k)
    size |= static_cast<std::size_t>(static_cast<unsigned char>((*bytes)[k])) << (8 * k);
  block.head = nlohmann::json::parse(bytes->substr(4, size));
  std::size_t at = 4 + size;
  for (const auto& column : block.head["columns"]) {
    const std::size_t length = column["bytes"].get<std::size_t>();
    const auto values =
        read_column(std::string_view(*bytes).substr(at, length), column["count"].get<std::int64_t>());
    EXPECT_TRUE(values);
    block.columns[column["name"]] = *values;
    at += length;
  }
  EXPECT_EQ(at, bytes->size());
  return block;
}

sample::Shape training() {
  sample::Shape shape;
  shape.chunks = 2;
  shape.latency = 50'000;
  shape.steps = 2;
  shape.tail = shape.losses = true;
  return shape;
}

TEST(Html, SameInputSameBytes) {
  const RunRecord record = sample::record_of(training());
  EXPECT_EQ(report_html(record, std::nullopt), report_html(record, std::nullopt));
}

TEST(Html, LoadsNothing) {
  const std::string page = report_html(sample::record_of(training()), sample::deadlock_verdict());
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.find("://"), std::string::npos);
  EXPECT_EQ(page.find("<link"), std::string::npos);
  EXPECT_EQ(page.find(" src="), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos) << "a slot of the template was not filled";
}

TEST(Html, BlockHoldsTheRecord) {
  const RunRecord record = sample::record_of(training());
  Block block = block_of(report_html(record, std::nullopt));
  EXPECT_EQ(block.head["ranks"], 4);
  EXPECT_EQ(block.head["labels"].size(), record.labels.size());
  EXPECT_EQ(block.columns["label"].size(), record.events.size());
  // Undo the differences lane by lane and look every event up in the record.
  std::multimap<std::tuple<int, Nanoseconds, Nanoseconds, Nanoseconds>, const RunEvent*> events;
  for (const RunEvent& e : record.events) events.insert({{e.rank, e.start, e.ready, e.end}, &e});
  std::size_t i = 0;
  std::int64_t label = 0, microbatch = 0, step = 0;
  for (const auto& lane : block.head["lanes"]) {
    Nanoseconds time = 0;
    for (int k = 0; k < lane["count"].get<int>(); ++k, ++i) {
      const Nanoseconds start = time + block.columns["gap"][i], ready = start + block.columns["wait"][i];
      time = ready + block.columns["work"][i];
      label += block.columns["label"][i];
      microbatch += block.columns["microbatch"][i];
      step += block.columns["step"][i];
      const auto [low, high] = events.equal_range({lane["rank"].get<int>(), start, ready, time});
      const auto found = std::find_if(low, high, [&](const auto& entry) {
        const RunEvent& e = *entry.second;
        return e.label == label && e.microbatch == microbatch && e.step == step &&
               e.stream == lane["stream"].get<int>();
      });
      ASSERT_NE(found, high);
      events.erase(found);
    }
  }
  EXPECT_TRUE(events.empty());
}

TEST(Html, LanesDoNotOverlap) {
  const RunRecord record = sample::record_of(training());
  std::vector<std::uint32_t> all(record.events.size());
  for (std::uint32_t k = 0; k < all.size(); ++k) all[k] = k;
  for (const Lane& lane : page_lanes(record, all)) {
    for (std::size_t k = 1; k < lane.events.size(); ++k) {
      EXPECT_LE(record.events[lane.events[k - 1]].end, record.events[lane.events[k]].start);
    }
  }
}

TEST(Html, LeavesOutWholeStepsAndSaysSo) {
  const RunRecord record = sample::record_of(training());
  ReportOptions options;
  options.most_events = static_cast<std::int64_t>(record.events.size()) - 1;
  const Block block = block_of(report_html(record, std::nullopt, options));
  EXPECT_EQ(block.head["leftOut"].get<std::size_t>(), record.events.size() / 2);
  EXPECT_EQ(block.head["steps"].size(), 2u);
  options.most_events = 100;  // less than one step: the lower ranks, whole
  const Block few = block_of(report_html(record, std::nullopt, options));
  EXPECT_LE(few.columns.at("label").size(), 100u);
  for (const auto& lane : few.head["lanes"]) EXPECT_LT(lane["rank"].get<int>(), 3);
}

TEST(Html, TextIsEscaped) {
  RunRecord record = sample::record_of({});
  record.schedule = record.backend = "</script><b>{{data}}";
  record.config = "</script>";
  const std::string page = report_html(record, std::nullopt);
  EXPECT_EQ(page.find("<b>{{data}}"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;{{data}}"), std::string::npos);
}

TEST(Html, DeadlockComesFirst) {
  const std::string page = report_html(sample::record_of({}), sample::deadlock_verdict());
  const std::size_t alarm = page.find("id=\"deadlock\"");
  ASSERT_NE(alarm, std::string::npos);
  EXPECT_LT(alarm, page.find("id=\"timeline\""));
  EXPECT_NE(page.find("class=\"ring\""), std::string::npos);
  EXPECT_NE(page.find("stuck here"), std::string::npos);
  EXPECT_NE(page.find("Ranks outside the cycle"), std::string::npos);
}

TEST(Html, HasTheTimersOfMegatronsLog) {
  const std::string page = report_html(sample::record_of(training()), std::nullopt);
  const std::size_t section = page.find("id=\"timers\"");
  ASSERT_NE(section, std::string::npos);
  for (const char* name : {"forward-compute", "backward-compute", "forward-recv", "interval-time"})
    EXPECT_NE(page.find(std::string("<td>") + name + "</td>", section), std::string::npos) << name;
  RunRecord evaluated = sample::record_of(training());
  for (StepRow& row : evaluated.steps) row.evaluation = true;
  EXPECT_EQ(report_html(evaluated, std::nullopt).find("id=\"timers\""), std::string::npos);
}

TEST(Html, UsesTheVerdictOfTheRecord) {
  RunRecord record = sample::record_of({});
  record.verdict_json = verdict_json(sample::deadlock_verdict());
  EXPECT_NE(report_html(record, std::nullopt).find("id=\"deadlock\""), std::string::npos);
  record.verdict_json = "not json";
  EXPECT_NE(report_html(record, std::nullopt).find("did not complete"), std::string::npos);
}

}  // namespace
}  // namespace plumbline
