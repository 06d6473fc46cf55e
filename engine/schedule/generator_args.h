// A generator's arguments from a validated configuration.
#pragma once

#include "engine/base/units.h"
#include "engine/config/run_config.h"
#include "engine/schedule/generator.h"

namespace plumbline {

// Sizes from [parallel] and [schedule]. Costs are the times of [time] and the transfer of an activation of
// this many bytes over an ordinary link. Activations count from F to W, one for each stage, under
// schedule.activation_cap.
GeneratorArgs generator_args_of(const RunConfig& config, Bytes activation);

}  // namespace plumbline
