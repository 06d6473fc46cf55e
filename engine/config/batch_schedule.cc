#include "engine/config/batch_schedule.h"

#include <utility>

#include <fmt/format.h>

namespace plumbline {

Result<NumMicrobatches> num_microbatches_of(const RunConfig& config) {
  const ScheduleConfig& schedule = config.schedule;
  const NumMicrobatches::Shape shape{config.train.micro_batch_size, config.parallel.dp};
  if (!schedule.batch_steps.empty()) {
    Result<NumMicrobatches::Steps> steps = NumMicrobatches::parse_steps(schedule.batch_steps);
    if (!steps) return tl::unexpected(std::move(steps.error()));
    return NumMicrobatches::steps(std::move(*steps), shape);
  }
  const std::int64_t global = schedule.global_batch_size > 0
                                  ? schedule.global_batch_size
                                  : schedule.microbatches * shape.micro_batch_size * shape.data_parallel_size;
  if (schedule.rampup.empty()) {
    return NumMicrobatches::constant(global, shape, schedule.decrease_batch_if_needed);
  }
  if (schedule.rampup.size() != 3) {
    return fail(ErrorCode::kConfig,
                fmt::format("schedule.rampup has {} numbers; a ramp-up is three, the first global batch, its "
                            "increment and the ramp's samples — give three",
                            schedule.rampup.size()));
  }
  const NumMicrobatches::RampUp ramp{schedule.rampup[0], schedule.rampup[1], schedule.rampup[2]};
  return NumMicrobatches::ramp_up(global, ramp, shape, schedule.decrease_batch_if_needed);
}

Result<std::int64_t> samples_of(const RunConfig& config, std::int64_t iterations) {
  const Result<NumMicrobatches> batches = num_microbatches_of(config);
  if (!batches) return tl::unexpected(batches.error());
  return batches->samples_for(iterations);
}

Result<std::int64_t> samples_of_run(const RunConfig& config) {
  if (config.train.samples > 0) return config.train.samples;
  return samples_of(config, config.train.iterations);
}

}  // namespace plumbline
