// What the loss scale of a finished run has to say.
#pragma once

#include <cstdint>

#include "engine/optim/loss_scaler.h"

namespace plumbline {

struct TrainOutcome;

// Adds notices; a run that trained nothing, in this part or in those before (`updates_before`), is no success, however
// well its steps went. Leaves alone an outcome that is a failure already.
void note_skips(const LossScaler& scaler, std::int64_t updates_before, TrainOutcome& outcome);

}  // namespace plumbline
