// The certification verdict of every recorded Megatron schedule, beside what the recording says
// (docs/certification.md has the table). Certification may be stricter than `ok`, and is never laxer.
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "engine/schedule/generator.h"
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

// --- Every generator, under every way to call and every communicator map.

struct Outcome {
  int configurations = 0;
  int certified = 0;
  int completes = 0;  // in the default mode, with the right labels
};

void add_configuration(const RunConfig& config, const Schedule& schedule, Outcome& outcome) {
  ++outcome.configurations;
  LowerOptions options;
  options.tail = StepTail::kSchedule;
  const auto program = lower(config, schedule, default_sizes(config), options);
  ASSERT_TRUE(program) << program.error().text();
  const auto linked = link_program(*program);
  ASSERT_TRUE(linked) << linked.error().text();
  CheckOptions check;
  check.makespan = false;
  const auto verdict = check_program(*linked, check);
  ASSERT_TRUE(verdict) << verdict.error().text();
  if (!verdict->findings.empty()) return;
  outcome.certified += verdict->modes.front().completes && verdict->modes.front().findings.empty() ? 1 : 0;
  outcome.completes += verdict->modes.back().completes ? 1 : 0;
}

struct Way {
  const char* name;
  P2pStyle style;
  bool calls;  // Megatron's calls of the schedule kind; else the generator's order with calls by rule
};

constexpr std::pair<const char*, ScheduleKind> kCalled[] = {
    {"gpipe", ScheduleKind::kGpipe},
    {"1f1b", ScheduleKind::kOneFOneB},
    {"interleaved", ScheduleKind::kInterleaved},
    {"interleaved-2022", ScheduleKind::kInterleaved2022},
    {"forward-only", ScheduleKind::kForwardOnly}};

std::vector<Way> ways_of(const std::string& generator) {
  std::vector<Way> ways{{"by rule", P2pStyle::kSeparate, false}, {"deferred", P2pStyle::kDeferred, false}};
  for (const auto& [name, kind] : kCalled) {
    if (name != generator) continue;
    ways.push_back({"batched", P2pStyle::kBatched, true});
    ways.push_back({"separate", P2pStyle::kSeparate, true});
    if (kind != ScheduleKind::kInterleaved) continue;
    ways.push_back({"overlap", P2pStyle::kOverlap, true});
    ways.push_back({"flush", P2pStyle::kFlush, true});
  }
  if (generator == "dualpipe" || generator == "dualpipe-v")
    ways.push_back({"own batches", P2pStyle::kBatched, false});
  return ways;
}

RunConfig config_for(const std::string& generator, const Way& way, int ranks, int chunks, int microbatches) {
  RunConfig config = test::config_of(ScheduleKind::kGenerator, ranks, chunks, microbatches);
  config.schedule.generator = generator;
  config.schedule.slices = generator == "seq-1f1b" ? 2 : 1;
  config.schedule.p2p = way.style;
  for (const auto& [name, kind] : kCalled) {
    if (way.calls && name == generator) config.schedule.kind = kind;
  }
  return config;
}

constexpr std::pair<const char*, CommMap> kMaps[] = {{"one", CommMap::kOne},
                                                     {"pair", CommMap::kPair},
                                                     {"direction", CommMap::kDirection},
                                                     {"megatron", CommMap::kMegatron}};

void run_grid(const std::string& generator, const Way& way, std::map<std::string, Outcome>& outcomes) {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int chunks : {1, 2, 4}) {
      for (const int microbatches : {3, 4, 8, 16}) {
        RunConfig config = config_for(generator, way, ranks, chunks, microbatches);
        if (way.calls && chunks == 1 && generator.rfind("interleaved", 0) == 0) continue;
        const Result<Schedule> schedule = schedule_of(config);
        if (!schedule) continue;  // sizes that the generator refuses
        for (const auto& [name, map] : kMaps) {
          config.schedule.comm_map = map;
          add_configuration(config, *schedule, outcomes[name]);
        }
      }
    }
  }
}

std::string cell_of(const Outcome& outcome) {
  if (outcome.certified == outcome.configurations) return "all";
  if (outcome.certified == outcome.completes) return fmt::format("{}", outcome.certified);
  return fmt::format("{}, {} by default", outcome.certified, outcome.completes);
}

TEST(Certification, EveryGeneratorUnderEveryMapIsInTheDocs) {
  std::string computed =
      "| schedule | calls | sizes | one | pair | direction | megatron |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Generator& generator : generators()) {
    for (const Way& way : ways_of(generator.name)) {
      std::map<std::string, Outcome> outcomes;
      run_grid(generator.name, way, outcomes);
      computed += fmt::format("| {} | {} | {} |", generator.name, way.name, outcomes["one"].configurations);
      for (const auto& [name, map] : kMaps) computed += fmt::format(" {} |", cell_of(outcomes[name]));
      computed += "\n";
    }
  }
  const std::string page = test::read_data("../docs/certification.md");
  EXPECT_NE(page.find(computed), std::string::npos) << "docs/certification.md should hold:\n" << computed;
}

}  // namespace
}  // namespace plumbline
