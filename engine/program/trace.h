// The Megatron call trace of a pipeline rank, in the oracle's notation (tests/oracles/megatron/README.md): F3.1<8!*, calls
// with their operations, D: deallocations, phase marks. It is read off a lowered Program, so comparing it with the
// recorded original compares what runs.
#pragma once

#include <string>

#include "engine/program/program.h"

namespace plumbline {

// `thread` indexes program.threads. Items of the optimizer's tail are left out.
std::string megatron_trace(const Program& program, std::size_t thread);

}  // namespace plumbline
