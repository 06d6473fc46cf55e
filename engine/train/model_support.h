// What a configuration asks of a model beyond computing a stage: recomputation, slices of sequences.
#pragma once

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/stage.h"

namespace plumbline {

// `slices` are the schedule's.
Status check_model_support(const RunConfig& config, const ModelFamily& family, int slices);

}  // namespace plumbline
