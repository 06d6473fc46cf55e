// AdamW with decoupled weight decay (Loshchilov and Hutter, 2019) on fp32 main parameters, and gradient
// clipping. Plain loops over raw memory: one result on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "engine/config/run_config.h"

namespace plumbline {

// One update of one parameter. Hyper-parameters are doubles, rounded once to fp32.
struct AdamWUpdate {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  std::int64_t step = 1;         // this update's number, from 1; for the bias correction
  float gradient_factor = 1.0f;  // clipping: the gradient is multiplied with it first
};

// All spans have the same length. The moments are updated in place.
void adamw(const AdamWUpdate& update, std::span<const float> gradient, std::span<float> parameter,
           std::span<float> first, std::span<float> second);

// Sum of squares in double, in element order.
double sum_of_squares(std::span<const float> values);
// sqrt of the sum, in order.
double norm_of_sums(std::span<const double> sums);
// min(1, limit / (norm + 1e-6)); 1 when there is no limit (0) or the norm is not a number, as Megatron has
// it.
float clip_factor(double norm, double limit);

// Multiplies in place; false when a value is not finite before the multiplication.
bool scale_and_check(std::span<float> values, float factor);

}  // namespace plumbline
