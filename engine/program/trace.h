// The Megatron call trace of a pipeline rank, in the oracle's notation (tests/oracles/megatron/README.md):
// F3.1<8!*, calls with their operations, D: deallocations, phase marks. It is read off a lowered Program, so
// comparing it with the recorded original compares what runs. Collectives over data parallel are GSc (the
// gradients of chunk c) and PSc (its parameters), once a chunk, however many buckets it has. X begins a combined step.
#pragma once

#include <cstdint>
#include <string>

#include "engine/program/program.h"

namespace plumbline {

enum class TraceStyle : std::uint8_t {
  kCurrent,  // Megatron-core: phase marks, '*' at a chunk's first microbatch, FIN
  k2022,     // the January-2022 code: none of these
};

// `thread` indexes program.threads; the Program was lowered with call_marks. Items of the optimizer's tail
// are left out.
std::string megatron_trace(const Program& program, std::size_t thread, TraceStyle style);

}  // namespace plumbline
