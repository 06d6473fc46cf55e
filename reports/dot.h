// Graphs as DOT text (Graphviz): the wait-for graph of a finding and the dependency graph of a step.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/runtime/run_record.h"
#include "sim/verdict.h"

namespace plumbline {

// Operations as nodes, gathered by rank; an edge says what its tail waits for and why. The cycle is red and
// bold.
std::string waits_dot(const Finding& finding);

constexpr int kMostDotNodes = 2000;

// Computations and messages of one step and what each of them needs: data (solid), stream order (grey), the
// other end of a message (dashed). The critical path is red. `step` -1: the typical step (analysis.h). More
// than kMostDotNodes nodes are refused: nobody can read that graph, and laying it out takes minutes.
Result<std::string> step_dot(const RunRecord& record, int step = -1);

// Lays a DOT text out and renders it as SVG. Needs Graphviz at build time; without, the error says what to
// install.
Result<std::string> dot_to_svg(const std::string& dot);

}  // namespace plumbline
