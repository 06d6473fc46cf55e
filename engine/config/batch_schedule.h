// The batch schedule of a configuration: which NumMicrobatches [schedule] microbatches, rampup, batch_steps and
// decrease_batch_if_needed mean together. One place, used by lowering, trainer and the scheduler's lengths.
#pragma once

#include "engine/base/result.h"
#include "engine/config/num_microbatches.h"
#include "engine/config/run_config.h"

namespace plumbline {

// `config` has passed validate(): microbatches is set, and at most one of rampup and batch_steps. The global batch
// is schedule.global_batch_size where that is left (with a ramp-up, whose end it is), otherwise
// schedule.microbatches * micro_batch_size * dp; with batch_steps the steps alone say.
Result<NumMicrobatches> num_microbatches_of(const RunConfig& config);

// Samples that the first `iterations` steps consume, and the whole run: train.samples if given, else those of
// train.iterations.
Result<std::int64_t> samples_of(const RunConfig& config, std::int64_t iterations);
Result<std::int64_t> samples_of_run(const RunConfig& config);

}  // namespace plumbline
