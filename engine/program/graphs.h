// with_graphs: the same Program, launched as CUDA graphs. Between two points at which the host waits for something -
// a read, a decision, a wait, a call on a communicator, the step's end - everything that is enqueued becomes one graph
// on the compute stream.
//
// What ordered two things before orders them afterwards (N18):
//   inside     streams and events, as captured
//   before     streams with work of their own are joined with the compute stream, on which the graph is launched
//   behind     the compute stream is behind the graph; another stream that goes on outside waits for the last graph
//              before it does, unless its group starts after the compute stream anyway
//   the host   that waits for something which a graph may hold waits for the last graph as well
// These edges can only add to the order: the new Program may stand still where the old one did not, and has to be
// judged itself. Its sends wait for their receivers (N37), which is the other reason.
#pragma once

#include "engine/base/result.h"
#include "engine/program/program.h"

namespace plumbline {

// kUnsupported: Programs that are not plain (is_plain), or whose table of events is full. Items of an arm stay in the
// arm: a graph with both arms holds what the decision before it left.
Result<Program> with_graphs(const Program& program);

// The items of such a Program as single calls, with the edges that graphs needed. Everything that is ordered in it is
// ordered in the graphs too, so that what the checker proves of its slots, gradients and memory holds for them.
Program without_graphs(const Program& program);

}  // namespace plumbline
