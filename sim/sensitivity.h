// Sensitivity: under which assumption about NCCL and its machine a Program breaks. Each knob of the model is
// turned alone, from what is kindest to what is worst, and the first setting that breaks the Program is found -
// by halving where a knob is a number.
//
// It starts from the default model (rendezvous, free, warm). A Program that hangs there is started from sends
// that always complete alone, if that helps, and the smallest buffer that hides the hang is found: a larger one
// only helps, so halving finds it.
#pragma once

#include <string>
#include <vector>

#include "engine/program/link.h"
#include "engine/runtime/time_model.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline {

// The rows in the order of the model's fields. `base`: where all knobs but one stand; its `send` row tells the
// buffer, if the Program needs one. Costs some tens of simulations.
Result<std::vector<SensitivityRow>> sensitivity(const LinkedProgram& linked, const TimeModel& time);

}  // namespace plumbline
