// The parameters of the whole model in their global order - stages ascending, each stage's parameters in
// order, the last stage's copy of a tied embedding left out of the numbering - and the part of it that a rank
// holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/model/stage.h"

namespace plumbline {

// One parameter tensor of the model on the stage that holds it.
struct ParameterSlice {
  std::string name;
  int stage = 0;
  int index = 0;   // among the stage's parameters
  int global = 0;  // among all parameters of the model, the tied one once
  bool tied = false;
  bool counted = true;  // false: the last stage's copy of the tied embedding, left out of norms and digests
  std::int64_t size = 0;
};

struct ModelTable {
  std::vector<std::vector<ParameterSlice>> stages;
  int parameters = 0;

  // What a rank with these stages (ascending) holds.
  std::vector<ParameterSlice> slices(const std::vector<int>& held) const;
};

// `stages` are all stages of one replica, ascending. Refuses a tied parameter that is not on the first and
// the last stage once each, and sizes that the family announced differently.
Result<ModelTable> describe_model(const std::vector<Stage*>& stages, const ModelSizes& announced);

}  // namespace plumbline
