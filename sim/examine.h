// What a Program amounts to in one mode, by simulation: whether it completes, and what its communication does
// wrong. Findings about buffers are left to the checker (sim/verify), which needs no mode for them.
#pragma once

#include "engine/program/link.h"
#include "engine/runtime/time_model.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline {

// Both arms of decisions are walked; the makespan is that of the arm without overflow. Where one run does not
// decide for all (sim/explore.h), schedules are explored, or - as reference models do - threads issue in their
// order, each as far as it can.
Result<ModeVerdict> examine_mode(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time,
                                 bool explore_schedules = true);

// Deadlocks, matching, collectives, connections and error codes.
bool about_communication(FindingKind kind);

}  // namespace plumbline
