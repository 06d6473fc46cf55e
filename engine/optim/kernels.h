// The optimizer's arithmetic on raw memory, CPU: one pass over memory each, AVX2 where there is one, and the
// same bits without. No LibTorch; tensor_ops.h applies them to lists of tensors and has LibTorch's own
// operations for tensors that are elsewhere (CUDA) or not dense.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/exact_sum.h"

namespace plumbline::kernels {

// values[i] *= factor; true when all were finite before. When `norm` is given, the squares of the products are
// added to it in the same pass (products that are not finite are counted there). Exactly what add_square() of
// every product gives.
bool unscale_check_norm(float* values, std::size_t count, float factor, ExactSum* norm);
// Adds squares.
void add_squares(const float* values, std::size_t count, ExactSum& norm);
// max |value|; NaN when one is NaN.
float abs_max(const float* values, std::size_t count);
// Sum of |value|^p in double, element order.
double sum_of_powers(const float* values, std::size_t count, double p);
std::int64_t count_zeros(const float* values, std::size_t count);  // +0 and -0

// Copies `count` elements, rounding once to nearest even where the target (f32, f16 or bf16, as the source) is
// narrower. False when a copied value is not finite, because it was not or because it is too large.
bool convert(const void* source, DType source_type, void* target, DType target_type, std::size_t count);

// What one Adam update of one tensor is made from. Hyper-parameters are doubles, rounded once to fp32.
struct AdamUpdate {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;         // AdamW; false: L2, the decay is added to the gradient
  std::int64_t step = 1;         // this update's number, from 1; for the bias correction
  float gradient_factor = 1.0f;  // clipping: the gradient is multiplied with it first
};

// Arrays of `count` elements that do not overlap. Precisions of gradient, main parameter and moments are each
// f32, f16 or bf16 (precision-aware states): read widened, computed in fp32, rounded once to nearest even when
// stored. `model` (may be null) receives the new parameter, as it was stored, rounded to `model_type`: clip, step
// and copy-back are one pass. The fp32 form of a decoupled update, in this order of operations:
//   g = gradient * factor;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + ((1 - beta2) * g) * g;
//   p = p * (1 - lr * weight_decay) - (lr / (1 - beta1^step)) * m / (sqrt(v) * (1 / sqrt(1 - beta2^step)) + eps)
// With L2, g = gradient * factor + weight_decay * p (not added when it is 0), and p is not multiplied.
struct AdamArrays {
  std::size_t count = 0;
  const void* gradient = nullptr;
  DType gradient_type = DType::kF32;
  void* parameter = nullptr;
  DType parameter_type = DType::kF32;
  void* first = nullptr;
  DType first_type = DType::kF32;
  void* second = nullptr;
  DType second_type = DType::kF32;
  void* model = nullptr;
  DType model_type = DType::kF32;
};
void adam(const AdamUpdate& update, const AdamArrays& arrays);

// SGD with momentum as torch has it: buffer = momentum * buffer + g (g itself on the first step), no dampening,
// no Nesterov; L2 decay added to g, unless it is 0.
struct SgdUpdate {
  double lr = 1e-3;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool first_step = true;
  float gradient_factor = 1.0f;
};
// fp32 arrays; `buffer` null exactly when there is no momentum; `model` as above.
void sgd(const SgdUpdate& update, std::size_t count, const float* gradient, float* parameter, float* buffer,
         void* model, DType model_type);

// For tests: the plain copy, here and in precision.h, even where there is AVX2.
void force_plain_optim(bool on);

}  // namespace plumbline::kernels
