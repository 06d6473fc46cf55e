// A recorded line of Megatron's call sequences (tests/oracles/megatron) as a configuration.
#pragma once

#include <string>

#include "engine/program/lower.h"
#include "tests/engine/program/config.h"
#include "tests/support/oracle.h"

namespace plumbline::test {

inline bool is_forward_only(const std::string& mode) { return mode.rfind("fwd", 0) == 0; }

inline P2pStyle style_of(const std::string& mode) {
  if (mode == "fwd_flush" || mode == "flush" || mode == "moe_flush") return P2pStyle::kFlush;
  if (mode == "overlap" || mode == "moe") return P2pStyle::kOverlap;
  // Overlap in the steady state has nothing to overlap with in a forward-only run: its calls are the separate ones.
  if (mode == "unbatch" || mode == "fwd_overlap") return P2pStyle::kSeparate;
  return P2pStyle::kBatched;
}

inline RunConfig config_of_line(const nlohmann::json& line) {
  const int chunks = line.at("vp").is_null() ? 1 : line.at("vp").get<int>();
  const int group = line.contains("g") && !line.at("g").is_null() ? line.at("g").get<int>() : 0;
  const std::string mode = line.at("mode");
  const ScheduleKind plain = mode == "fwd" ? ScheduleKind::kForwardOnly : ScheduleKind::kOneFOneB;
  const ScheduleKind kind = line.at("sched") == "1f1b" ? plain
                            : line.at("alg") == "seed" ? ScheduleKind::kInterleaved2022
                                                       : ScheduleKind::kInterleaved;
  RunConfig config = config_of(kind, line.at("pp"), chunks, line.at("m"), group);
  config.schedule.p2p = style_of(mode);
  config.schedule.combined = mode.rfind("moe", 0) == 0;
  return config;
}

// The schedule a line ran; forward-only forms on the kind's own algorithm.
inline Result<Schedule> schedule_of_line(const nlohmann::json& line, const RunConfig& config) {
  const bool own_form =
      is_forward_only(line.at("mode")) && config.schedule.kind != ScheduleKind::kForwardOnly;
  return own_form ? evaluation_schedule_of(config) : schedule_of(config);
}

}  // namespace plumbline::test
