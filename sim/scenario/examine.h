// What a scenario amounts to: the Program it stands for, and its verdict in any number of modes.
#pragma once

#include <string>
#include <vector>

#include "engine/program/program.h"
#include "engine/runtime/time_model.h"
#include "sim/nccl_model.h"
#include "sim/scenario/scenario.h"
#include "sim/verdict.h"

namespace plumbline {

// The Program: communicators become families, labels slot classes, a barrier an all-reduce of i32 (which is
// what PyTorch makes of it). Host threads keep their order.
Result<Program> scenario_program(const Scenario& scenario);

// The model in which `mode` examines this scenario: its own options are added.
NcclModel scenario_model(const Scenario& scenario, NcclModel mode);

// One ModeVerdict a mode, named as asked for. Deadlocks, sizes, labels, collectives and connections are looked
// at; a scenario has no buffers to speak of. Schedules are explored, or taken as reference models do (examine.h).
Result<Verdict> examine_scenario(const Scenario& scenario, const std::vector<NcclModel>& modes,
                                 const TimeModel& time = {}, bool explore_schedules = false);

// All of them, on up to `workers` threads; the verdicts are in the scenarios' order.
std::vector<Result<Verdict>> examine_scenarios(const std::vector<Scenario>& scenarios,
                                               const std::vector<NcclModel>& modes, const TimeModel& time,
                                               unsigned workers, bool explore_schedules = false);

// The verdict in a reference model's words: OK, or DEADLOCK, BYTES, WRONGDATA, COLLMISMATCH, CROSSWIRED,
// INTERNAL_ERROR(truncated) joined by "+", DEADLOCK first and the others in alphabetical order. A call that
// returns an error, which reference models do not know, adds ERROR(CODE).
std::string reference_value(const ModeVerdict& verdict);

// Differences between the modes' values and Scenario::expected, in words, one a mode: what the text expects,
// what was found. Modes that one side lacks are not compared.
std::vector<std::string> differences(const Scenario& scenario, const Verdict& verdict);

}  // namespace plumbline
