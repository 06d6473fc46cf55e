// The options of a run as a checkpoint keeps them, and whether another run may go on from it.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/optim/state_dict.h"

namespace plumbline {

// {"parallel.pp": "2", ...}: every option of the sections that say what is trained and how, as text, and
// "data_digest". Directories of checkpoints and what only the simulator knows are left out.
StateDict run_arguments(const RunConfig& config, const std::string& data_digest);

// Refused (kState), every difference named: another model, precision, or with `with_optim` rule of the optimizer. What
// changes training but may be changed - seed, text, batch, rates, loss scale - is one sentence in `notices`. The layout
// may be any.
Status compare_arguments(const StateDict& saved, const RunConfig& config, const std::string& data_digest,
                         bool with_optim, std::vector<std::string>& notices);

}  // namespace plumbline
