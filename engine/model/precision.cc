#include "engine/model/precision.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define PL_HAVE_F16C
#include <immintrin.h>
#endif

#include "engine/base/assert.h"
#include "engine/runtime/half.h"

namespace plumbline {
namespace {

// fp16 conversions of whole arrays: eight at a time where the processor has F16C, which rounds as half.h
// does.
void widen_half_plain(const std::uint16_t* source, float* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) destination[i] = f16_to_float(source[i]);
}

void narrow_half_plain(const float* source, std::uint16_t* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) destination[i] = float_to_f16(source[i]);
}

void round_half_plain(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = f16_to_float(float_to_f16(values[i]));
}

#ifdef PL_HAVE_F16C
#define PL_F16C __attribute__((target("avx,f16c")))

PL_F16C void widen_half_f16c(const std::uint16_t* source, float* destination, std::size_t count) {
  const std::size_t whole = count & ~std::size_t{7};
  for (std::size_t i = 0; i < whole; i += 8) {
    _mm256_storeu_ps(destination + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
  }
  widen_half_plain(source + whole, destination + whole, count - whole);
}

PL_F16C void narrow_half_f16c(const float* source, std::uint16_t* destination, std::size_t count) {
  const std::size_t whole = count & ~std::size_t{7};
  for (std::size_t i = 0; i < whole; i += 8) {
    const __m128i rounded = _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + i), rounded);
  }
  narrow_half_plain(source + whole, destination + whole, count - whole);
}

PL_F16C void round_half_f16c(float* values, std::size_t count) {
  const std::size_t whole = count & ~std::size_t{7};
  for (std::size_t i = 0; i < whole; i += 8) {
    const __m128i rounded = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(rounded));
  }
  round_half_plain(values + whole, count - whole);
}

bool has_f16c() {
  static const bool yes = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return yes;
}
#endif

void widen_half(const std::uint16_t* source, float* destination, std::size_t count) {
#ifdef PL_HAVE_F16C
  if (has_f16c()) return widen_half_f16c(source, destination, count);
#endif
  widen_half_plain(source, destination, count);
}

void narrow_half(const float* source, std::uint16_t* destination, std::size_t count) {
#ifdef PL_HAVE_F16C
  if (has_f16c()) return narrow_half_f16c(source, destination, count);
#endif
  narrow_half_plain(source, destination, count);
}

void round_half(float* values, std::size_t count) {
#ifdef PL_HAVE_F16C
  if (has_f16c()) return round_half_f16c(values, count);
#endif
  round_half_plain(values, count);
}

void widen_bfloat(const std::uint16_t* source, float* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) destination[i] = bf16_to_float(source[i]);
}

void narrow_bfloat(const float* source, std::uint16_t* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) destination[i] = float_to_bf16(source[i]);
}

void round_bfloat(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = bf16_to_float(float_to_bf16(values[i]));
}

}  // namespace

void widen(const void* source, DType type, float* destination, std::size_t count) {
  switch (type) {
    case DType::kF16:
      return widen_half(static_cast<const std::uint16_t*>(source), destination, count);
    case DType::kBF16:
      return widen_bfloat(static_cast<const std::uint16_t*>(source), destination, count);
    case DType::kF32:
      std::memcpy(destination, source, count * sizeof(float));
      return;
    default:
      PL_ASSERT_MSG(false, "not a precision");
  }
}

void narrow(const float* source, DType type, void* destination, std::size_t count) {
  switch (type) {
    case DType::kF16:
      return narrow_half(source, static_cast<std::uint16_t*>(destination), count);
    case DType::kBF16:
      return narrow_bfloat(source, static_cast<std::uint16_t*>(destination), count);
    case DType::kF32:
      std::memcpy(destination, source, count * sizeof(float));
      return;
    default:
      PL_ASSERT_MSG(false, "not a precision");
  }
}

void accumulate(const void* values, DType type, float* sums, std::size_t count) {
  constexpr std::size_t kBlock = 1024;
  float block[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t part = std::min(kBlock, count - at);
    const std::size_t bytes = at * static_cast<std::size_t>(dtype_bytes(type));
    widen(static_cast<const std::byte*>(values) + bytes, type, block, part);
    for (std::size_t i = 0; i < part; ++i) sums[at + i] += block[i];
  }
}

void round_to(DType type, float* values, std::size_t count) {
  if (type == DType::kF16) round_half(values, count);
  if (type == DType::kBF16) round_bfloat(values, count);
}

float round_to(DType type, float value) {
  if (type == DType::kF16) return f16_to_float(float_to_f16(value));
  if (type == DType::kBF16) return bf16_to_float(float_to_bf16(value));
  return value;
}

}  // namespace plumbline
