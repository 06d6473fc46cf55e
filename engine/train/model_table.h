// The parameters of the whole model in their global order - stages ascending, each stage's parameters in
// order, the last stage's copy of a tied embedding left out of the numbering - and the part of it that a rank
// holds.
#pragma once

#include <vector>

#include "engine/base/result.h"
#include "engine/model/stage.h"
#include "engine/optim/rank_optimizer.h"

namespace plumbline {

struct ModelTable {
  std::vector<std::vector<ParameterSlice>> stages;  // offsets count from 0 within each stage
  int parameters = 0;

  // What a rank with these stages (ascending) holds, offsets in its flat arrays.
  std::vector<ParameterSlice> slices(const std::vector<int>& held) const;
};

// `stages` are all stages of one replica, ascending. Refuses a tied parameter that is not on the first and
// the last stage once each, and sizes that the family announced differently.
Result<ModelTable> describe_model(const std::vector<Stage*>& stages, const ModelSizes& announced);

// Values of the parameters in the order of `slices`, as fp32.
std::vector<float> flat_values(const std::vector<ParameterSlice>& slices, const std::vector<Stage*>& stages);

}  // namespace plumbline
