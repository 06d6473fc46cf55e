// The verdicts recorded beside Megatron's call sequences (tests/oracles/megatron/README.md), in the settings
// they were made in: `one` = Megatron's communicators, `pair` = map pair, `oneeager` = `one` with sends that
// complete alone; rendezvous otherwise, warm connections, communicators free of each other.
#include <map>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/simulator.h"
#include "tests/engine/program/megatron_lines.h"

namespace plumbline {
namespace {

std::string verdict_of(const RunConfig& config, const Schedule& schedule, const NcclModel& model) {
  LowerOptions options;
  options.tail = StepTail::kSchedule;
  const auto program = lower(config, schedule, default_sizes(config), options);
  if (!program) return program.error().text();
  const auto linked = link_program(*program);
  if (!linked) return linked.error().text();
  const auto mode = simulate(*linked, model, TimeModel{});
  if (!mode) return mode.error().text();
  if (!mode->completes) return "deadlock";
  for (const Finding& finding : mode->findings) {
    if (finding.kind == FindingKind::kLabelMismatch) return "mismatch";
    if (finding.kind == FindingKind::kUnmatched) return "leftover";
  }
  return "ok";
}

void compare_line(const nlohmann::json& line, std::map<std::string, int>& counts) {
  if (!line.contains("verdict") || line.contains("error") || line.contains("guard"))
    return;  // refused inputs
  RunConfig config = test::config_of_line(line);
  const auto schedule = test::schedule_of_line(line, config);
  ASSERT_TRUE(schedule.has_value()) << schedule.error().text();
  NcclModel rendezvous;
  NcclModel eager;
  eager.send = SendCompletion::kAlwaysEager;
  // Two ranks with separate calls: the recording tells the world's communicator from the pipeline's pair.
  const bool two = line.at("pp") == 2;
  const bool apart = config.schedule.p2p != P2pStyle::kBatched;
  const struct {
    const char* name;
    CommMap map;
    NcclModel model;
  } settings[] = {{"one", CommMap::kMegatron, rendezvous},
                  {"pair", two && apart ? CommMap::kMegatron : CommMap::kPair, rendezvous},
                  {"oneeager", CommMap::kMegatron, eager}};
  for (const auto& setting : settings) {
    config.schedule.comm_map = setting.map;
    const std::string expected = line.at("verdict").at(setting.name);
    ASSERT_EQ(verdict_of(config, *schedule, setting.model), expected)
        << setting.name << " " << line.dump().substr(0, 140);
    ++counts[expected];
  }
}

TEST(MegatronVerdicts, EveryRecordedVerdict) {
  std::map<std::string, int> counts;
  for (const char* file :
       {"schedule_ops_1f1b_current", "schedule_ops_seed_2022", "schedule_ops_interleaved_current"}) {
    test::for_each_line(std::string("oracles/megatron/") + file + ".jsonl.gz",
                        [&](const nlohmann::json& line) { compare_line(line, counts); });
  }
  EXPECT_GT(counts["ok"], 2000);
  EXPECT_GT(counts["mismatch"], 50);
}

}  // namespace
}  // namespace plumbline
