// Operations on lists of tensors, the counterpart of apex's multi-tensor functions. Dense CPU tensors take the
// fused kernels (kernels.h); any other tensor takes the plain loop of LibTorch operations with the same
// meaning, which tests also use as the independent reference.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/exact_sum.h"
#include "engine/base/result.h"

namespace plumbline {

// Multiplies every tensor by inv_scale in place; true when some element was not finite before. Every tensor is
// multiplied, also after one was found. With `norm` the squares of the results are added. fp32 is fused; other
// precisions take the plain loop and are rounded to their own.
bool unscale_and_check(const std::vector<at::Tensor>& gradients, float inv_scale, ExactSum* norm = nullptr);

// Copies this[i] into that[i], converting. `overflow` (if given) is set to 1 when a finite value became infinite
// or a source value was not finite, and is otherwise left alone (Megatron's overflow_buf). Lists of different
// length, or pairs of different sizes, are an error - never cut to the shorter one. Empty lists: nothing.
Status multi_tensor_copy_this_to_that(const std::vector<at::Tensor>& source,
                                      const std::vector<at::Tensor>& target,
                                      std::int32_t* overflow = nullptr);

// Local part of the norm over fp32 gradients: p = 2 exact, infinity the largest magnitude, other p the sum of
// powers (double, list order).
struct LocalNorm {
  double p = 2.0;  // infinity allowed
  ExactSum squares;
  double other = 0.0;
};
Result<LocalNorm> local_norm(const std::vector<at::Tensor>& gradients,
                             double p);  // refuses p <= 0, NaN, not fp32
// The norm of a combined LocalNorm: sqrt, max, or the p-th root. 0 for empty lists.
double norm_of(const LocalNorm& combined);

// Clip coefficient as Megatron has it: max_norm / (norm + 1e-6), 1 when that is not below 1, when there is no
// limit (0) or the norm is not a number. Never above 1: clipping does not grow a gradient.
float clip_coefficient(double norm, double max_norm);
void scale_gradients(const std::vector<at::Tensor>& gradients, float factor);

std::int64_t count_zeros(const std::vector<at::Tensor>& gradients);

// For tests: the plain loop for every tensor.
void force_plain_tensor_ops(bool on);

}  // namespace plumbline
