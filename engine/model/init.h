// Making parameters: initial values are draws of CounterRng(seed, parameter name) indexed by element, rounded
// to the run's precision, so that no layout of stages and ranks changes them.
#pragma once

#include <string>

#include "engine/model/stage.h"

namespace plumbline {

// Normal with the given standard deviation; 0 makes zeros.
StageParameter normal_parameter(const StageSpec& spec, std::string name, at::IntArrayRef shape, double std);
StageParameter constant_parameter(const StageSpec& spec, std::string name, at::IntArrayRef shape,
                                  double value);

// The parts of sizes_by_making.
ModelSizes activation_sizes(const RunConfig& config);
void add_stage_sizes(const std::vector<StageParameter>& parameters, ModelSizes& sizes);

// Sizes of a model found by making each of its stages once, for models that do not care to work them out:
// parameters and gradients exactly, an activation of [micro_batch_size, seq_length, hidden], and a stash of
// one activation a parameter.
template <typename StageType>
ModelSizes sizes_by_making(const RunConfig& config) {
  ModelSizes sizes = activation_sizes(config);
  for (int stage = 0; stage < config.stages(); ++stage) {
    StageType made({stage, config.stages(), &config});
    add_stage_sizes(made.parameters(), sizes);
  }
  return sizes;
}

}  // namespace plumbline
