// The run's precision: what a parameter and an activation are stored in. Everything is computed in fp32 and
// rounded once when it is stored, as a tensor core with fp32 accumulators does; fp32 is the identity.
#pragma once

#include <cstddef>

#include "engine/base/dtype.h"
#include "engine/config/run_config.h"

namespace plumbline {

constexpr DType dtype_of(Precision precision) {
  return precision == Precision::kFp16   ? DType::kF16
         : precision == Precision::kBf16 ? DType::kBF16
                                         : DType::kF32;
}

// `count` elements of type `type` (f16, bf16 or f32) to fp32 and back, as engine/runtime/half.h does one. Source
// and destination do not overlap.
void widen(const void* source, DType type, float* destination, std::size_t count);
void narrow(const float* source, DType type, void* destination, std::size_t count);

// sums[i] += values[i], in fp32.
void accumulate(const void* values, DType type, float* sums, std::size_t count);

// Rounds fp32 values to the nearest value of `type`, in place.
void round_to(DType type, float* values, std::size_t count);
float round_to(DType type, float value);

// For tests: the loops for any processor although this one has AVX2 and F16C. The bits are the same.
void force_plain_precision(bool on);

}  // namespace plumbline
