// The timers of a run under the names of Megatron's log (engine/runtime/timers.h), as a section of the HTML report;
// plain HTML, readable without the script.
#pragma once

#include <string>

#include "engine/runtime/run_record.h"

namespace plumbline {

// A row a timer, with the rank that has the least and the one that has the most of it, a training step. Empty when the
// record has no training step with events.
std::string timers_section(const RunRecord& record);

}  // namespace plumbline
