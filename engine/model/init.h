// Making parameters: initial values are draws of CounterRng(seed, parameter name) indexed by element, rounded to the run's
// precision, so that no layout of stages and ranks changes them.
#pragma once

#include <string>

#include "engine/model/stage.h"

namespace plumbline {

// Normal with the given standard deviation; 0 makes zeros.
StageParameter normal_parameter(const StageSpec& spec, std::string name, at::IntArrayRef shape, double std);
StageParameter constant_parameter(const StageSpec& spec, std::string name, at::IntArrayRef shape, double value);

// The layers of a stage when `layers` are split evenly in order, the first stages taking one more if it does not divide.
struct LayerRange {
  int begin = 0;
  int end = 0;
};
LayerRange layers_of_stage(int layers, int stage, int stages);

}  // namespace plumbline
