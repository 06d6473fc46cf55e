// The parameter groups that the whole model has, whatever part of it a rank holds.
#pragma once

#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/stage.h"
#include "engine/optim/param_overrides.h"

namespace plumbline {

// What they are told apart by. Makes all stages once, one after the other.
Result<std::vector<GroupKey>> group_keys_of_model(const ModelFamily& family, const RunConfig& config);

}  // namespace plumbline
