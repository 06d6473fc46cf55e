// Configurations for tests, without going through files.
#pragma once

#include "engine/config/run_config.h"

namespace plumbline::test {

inline RunConfig config_of(ScheduleKind kind, int pp, int chunks, int microbatches, int group_size = 0,
                           int dp = 1) {
  RunConfig config;
  config.schedule.kind = kind;
  config.parallel.pp = pp;
  config.parallel.dp = dp;
  config.schedule.chunks = chunks;
  config.schedule.microbatches = microbatches;
  config.schedule.group_size = group_size > 0 ? group_size : pp;
  config.model.layers = pp * chunks;
  const auto grid = RankGrid::create({1, 1, 1, dp, pp});
  config.grid = *grid;
  return config;
}

}  // namespace plumbline::test
