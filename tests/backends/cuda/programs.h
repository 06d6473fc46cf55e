// Small Programs of the schedules, with times.
#pragma once

#include <string>

#include "engine/program/lower.h"
#include "engine/schedule/generator.h"
#include "tests/engine/program/config.h"

namespace plumbline::cuda {

inline RunConfig config_of(ScheduleKind kind, int pp, int dp, int chunks, Precision precision) {
  RunConfig config = test::config_of(kind, pp, chunks, 2 * pp, 0, dp);
  config.train.precision = precision;
  config.time.forward = {20000};
  config.time.backward = {40000};
  config.time.link = {2000, 1e9};
  return config;
}

inline ModelSizes small_sizes(const RunConfig& config, int stages) {
  ModelSizes sizes = default_sizes(config);
  sizes.activation = 64;
  sizes.stash.assign(static_cast<std::size_t>(stages), 32);
  return sizes;
}

inline Result<Program> program_of(const RunConfig& config) {
  const Result<Schedule> schedule = schedule_of(config);
  if (!schedule) return tl::unexpected(schedule.error());
  return lower(config, *schedule, small_sizes(config, schedule->stages));
}

}  // namespace plumbline::cuda
