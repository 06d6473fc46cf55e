#include "sim/verdict.h"

#include <gtest/gtest.h>

#include "sim/nccl_model.h"

namespace plumbline {
namespace {

Verdict sample() {
  Verdict verdict;
  verdict.program = "p \"quoted\"\n";
  verdict.operations = 12;
  verdict.trace_hash = 0xFEDCBA9876543210ULL;
  Finding finding;
  finding.kind = FindingKind::kLeak;
  finding.operations = {{3, 17, 2, "2SEND_F2 to rank 0"}, {1, -1, -1, "x"}};
  finding.why = "because";
  finding.cycle = {{{0, 1, 2, "a"}, {1, 2, 3, "b"}, "r"}};
  finding.waits = {{{0, 1, 2, "a"}, {1, 2, 3, "b"}, "r"}, {{1, 2, 3, "b"}, {0, 1, 2, "a"}, "s"}};
  verdict.findings = {finding};
  verdict.modes = {{certification_model().name(), true, {}, 5}, {default_model().name(), true, {}, 4}};
  verdict.memory = {{100, 90, 8, "2F1", 3}, {}};
  return verdict;
}

TEST(Verdict, JsonReadsBack) {
  const std::string json = verdict_json(sample());
  const Result<Verdict> read = parse_verdict_json(json, "v.json");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(verdict_json(*read), json);
  EXPECT_EQ(read->findings[0].operations[0].item, 17);
  EXPECT_EQ(read->trace_hash, 0xFEDCBA9876543210ULL);
}

TEST(Verdict, BadJsonIsAnError) {
  const std::string json = verdict_json(sample());
  for (std::size_t cut = 0; cut < json.size(); ++cut)
    EXPECT_FALSE(parse_verdict_json(json.substr(0, cut), "v.json"));
  for (const char* text : {"[]", "{}", "null", "{\"program\":3}", "[[[["}) {
    const Result<Verdict> read = parse_verdict_json(text, "v.json");
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().where.file, "v.json");
  }
}

TEST(Verdict, ExitCodesByPrecedence) {
  Verdict verdict = sample();
  EXPECT_EQ(verdict.exit_code(), 1);
  EXPECT_FALSE(verdict.holds());
  verdict.findings.clear();
  EXPECT_EQ(verdict.exit_code(), 0);
  EXPECT_TRUE(verdict.holds());
  EXPECT_TRUE(verdict.certified());
  verdict.findings.push_back({FindingKind::kMemoryLimit, {}, {}, {}, {}});
  EXPECT_EQ(verdict.exit_code(), 5);
  verdict.modes[1].completes = false;
  EXPECT_EQ(verdict.exit_code(), 3);
  verdict.findings.clear();
  EXPECT_TRUE(verdict.certified());
  verdict.modes.erase(verdict.modes.begin());
  EXPECT_FALSE(verdict.certified());
}

}  // namespace
}  // namespace plumbline
