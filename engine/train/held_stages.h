// Which stages of a Program a rank holds. Several ranks of a pipeline may hold copies of one.
#pragma once

#include <vector>

#include "engine/program/program.h"
#include "engine/train/model_table.h"

namespace plumbline {

// Of a pipeline coordinate, ascending.
std::vector<int> stages_held(const Program& program, int coordinate);

// The parameters of these stages. One that several coordinates have copies of is counted on the lowest of them.
std::vector<ParameterSlice> slices_held(const Program& program, const ModelTable& table, int coordinate,
                                        const std::vector<int>& held);

}  // namespace plumbline
