// Chimera for any number of pipeline pairs. Half of the pipelines run down the ranks, half up, each pair
// shifted around the ring by an equal part; every one takes an equal part of each unit of P microbatches.
//
// All orders follow from one grid of equal slots. The j-th microbatch of a pipeline in unit u runs F of
// stage s in slot 2Pu + 2j + s and B in slot 2Pu + 2j + 2P-1-s: pipelines that start at ranks of one parity
// keep out of each other's way, and a unit's first forwards fill the gaps that the last backwards of the
// unit before leave.
#pragma once

#include <string_view>

#include "engine/schedule/generator.h"

namespace plumbline {

Result<Schedule> chimera_schedule(const GeneratorArgs& args, std::string_view name, int pairs);

}  // namespace plumbline
