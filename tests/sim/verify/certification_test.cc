// The certification verdict of every recorded Megatron schedule, beside what the recording says
// (docs/certification.md has the table). Certification may be stricter than `ok`, and is never laxer.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/verify/check.h"
#include "tests/engine/program/megatron_lines.h"

namespace plumbline {
namespace {

// "ok", "deadlock", "mismatch", "cross-wired": the certification mode's outcome.
std::string certification_of(const RunConfig& config, const Schedule& schedule) {
  LowerOptions options;
  options.tail = StepTail::kSchedule;
  const auto program = lower(config, schedule, default_sizes(config), options);
  if (!program) return program.error().text();
  const auto linked = link_program(*program);
  if (!linked) return linked.error().text();
  CheckOptions check;
  check.makespan = false;
  const auto verdict = check_program(*linked, check);
  if (!verdict) return verdict.error().text();
  for (const Finding& finding : verdict->findings) {
    if (finding.kind == FindingKind::kLabelMismatch) return "mismatch";
    return std::string(finding_kind_name(finding.kind)) + ": " + finding.why;
  }
  const ModeVerdict& certification = verdict->modes.front();
  for (const Finding& finding : certification.findings) {
    if (finding.kind == FindingKind::kCrossWired) return "cross-wired";
  }
  return certification.completes ? "ok" : "deadlock";
}

struct Row {
  std::string calls;  // batch, unbatch, overlap, flush, moe, moe_flush, fwd, fwd_overlap, fwd_flush
  std::string map;
  std::string ranks;  // "2", "odd", "even"
  auto operator<=>(const Row&) const = default;
};

using Table = std::map<Row, std::map<std::string, int>>;

void add_line(const nlohmann::json& line, Table& table) {
  if (!line.contains("verdict") || line.contains("error") || line.contains("guard")) return;
  const std::string mode = line.at("mode");
  const bool plain = line.at("sched") == "1f1b";
  const int pp = line.at("pp");
  RunConfig config = test::config_of_line(line);
  const auto schedule = test::schedule_of_line(line, config);
  ASSERT_TRUE(schedule.has_value()) << schedule.error().text();
  const std::pair<const char*, CommMap> maps[] = {{"megatron", CommMap::kMegatron},
                                                  {"one", CommMap::kOne},
                                                  {"pair", CommMap::kPair},
                                                  {"direction", CommMap::kDirection}};
  for (const auto& [name, map] : maps) {
    config.schedule.comm_map = map;
    const std::string verdict = certification_of(config, *schedule);
    const std::string recorded = line.at("verdict").at("one");
    if (recorded != "ok" && map != CommMap::kDirection) {
      EXPECT_NE(verdict, "ok") << name << " " << line.dump().substr(0, 120);
    }
    ++table[{(plain ? "1f1b " : "interleaved ") + mode, name,
             pp == 2       ? "2"
             : pp % 2 == 0 ? "even"
                           : "odd"}][verdict];
  }
}

std::string as_markdown(const Table& table) {
  std::string text =
      "| schedule and calls | communicator map | ranks | lines | certified | other |\n| --- | --- | --- | "
      "--- | --- | --- |\n";
  for (const auto& [row, verdicts] : table) {
    int lines = 0;
    std::string other;
    for (const auto& [verdict, count] : verdicts) {
      lines += count;
      if (verdict != "ok") other += (other.empty() ? "" : ", ") + std::to_string(count) + " " + verdict;
    }
    const auto ok = verdicts.find("ok");
    text += "| " + row.calls + " | " + row.map + " | " + row.ranks + " | " + std::to_string(lines) + " | " +
            std::to_string(ok == verdicts.end() ? 0 : ok->second) + " | " + other + " |\n";
  }
  return text;
}

TEST(Certification, TheTableInTheDocsIsTheOneComputed) {
  Table table;
  for (const char* file :
       {"schedule_ops_1f1b_current", "schedule_ops_seed_2022", "schedule_ops_interleaved_current"}) {
    test::for_each_line(std::string("oracles/megatron/") + file + ".jsonl.gz",
                        [&](const nlohmann::json& line) { add_line(line, table); });
  }
  const std::string computed = as_markdown(table);
  const std::string page = test::read_data("../docs/certification.md");
  EXPECT_NE(page.find(computed), std::string::npos) << "docs/certification.md should hold:\n" << computed;
}

}  // namespace
}  // namespace plumbline
