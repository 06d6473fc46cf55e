// The part of the HTML report that a Verdict fills; plain HTML, readable without the script.
#pragma once

#include <string>

#include "engine/runtime/run_record.h"
#include "sim/verdict.h"

namespace plumbline {

// What is wrong, the deadlock first: the sentence, the ring of the cycle, the last operations of each rank
// with the one it is stuck in, and apart from them the ranks that only wait for the cycle. Empty when the
// verdict holds.
std::string findings_section(const RunRecord& record, const Verdict& verdict);

// The outcome in every execution mode, and memory by rank. Empty when the verdict has neither.
std::string modes_section(const Verdict& verdict);

}  // namespace plumbline
