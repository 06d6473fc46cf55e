#include "engine/model/precision.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define PL_X86
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "engine/base/assert.h"
#include "engine/runtime/half.h"

namespace plumbline {
namespace {

// One element of a 16-bit format.
struct Half {
  static float wide(std::uint16_t bits) { return f16_to_float(bits); }
  static std::uint16_t narrow(float value) { return float_to_f16(value); }
};
struct Bfloat {
  static float wide(std::uint16_t bits) { return bf16_to_float(bits); }
  static std::uint16_t narrow(float value) { return float_to_bf16(value); }
};

template <typename Format>
void widen_plain(const std::uint16_t* source, float* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) destination[i] = Format::wide(source[i]);
}

template <typename Format>
void narrow_plain(const float* source, std::uint16_t* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) destination[i] = Format::narrow(source[i]);
}

template <typename Format>
void round_plain(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = Format::wide(Format::narrow(values[i]));
}

bool plain_forced = false;

#ifdef PL_X86
// Eight elements at a time, rounding as half.h does. F16C has the fp16 conversions; those of bf16 are shifts.
#define PL_AVX2 __attribute__((target("avx2,f16c")))
#define PL_AVX2_INLINE PL_AVX2 __attribute__((always_inline)) inline

PL_AVX2_INLINE __m256 wide_half(__m128i bits) { return _mm256_cvtph_ps(bits); }
PL_AVX2_INLINE __m128i narrow_half(__m256 values) {
  return _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
}

PL_AVX2_INLINE __m256 wide_bfloat(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

PL_AVX2_INLINE __m128i narrow_bfloat(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  const __m256i chosen = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
}

PL_AVX2_INLINE __m128i load(const std::uint16_t* source) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
}
PL_AVX2_INLINE void store(std::uint16_t* destination, __m128i bits) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination), bits);
}

// The three loops over one format's conversions; the tail is the plain loop's.
#define PL_FORMAT_LOOPS(Format, wide, narrow)                                                               \
  PL_AVX2 void widen_avx2(Format, const std::uint16_t* source, float* destination, std::size_t count) {     \
    const std::size_t whole = count & ~std::size_t{7};                                                      \
    for (std::size_t i = 0; i < whole; i += 8) _mm256_storeu_ps(destination + i, wide(load(source + i)));   \
    widen_plain<Format>(source + whole, destination + whole, count - whole);                                \
  }                                                                                                         \
  PL_AVX2 void narrow_avx2(Format, const float* source, std::uint16_t* destination, std::size_t count) {    \
    const std::size_t whole = count & ~std::size_t{7};                                                      \
    for (std::size_t i = 0; i < whole; i += 8) store(destination + i, narrow(_mm256_loadu_ps(source + i))); \
    narrow_plain<Format>(source + whole, destination + whole, count - whole);                               \
  }                                                                                                         \
  PL_AVX2 void round_avx2(Format, float* values, std::size_t count) {                                       \
    const std::size_t whole = count & ~std::size_t{7};                                                      \
    for (std::size_t i = 0; i < whole; i += 8) {                                                            \
      _mm256_storeu_ps(values + i, wide(narrow(_mm256_loadu_ps(values + i))));                              \
    }                                                                                                       \
    round_plain<Format>(values + whole, count - whole);                                                     \
  }
PL_FORMAT_LOOPS(Half, wide_half, narrow_half)
PL_FORMAT_LOOPS(Bfloat, wide_bfloat, narrow_bfloat)
#undef PL_FORMAT_LOOPS

bool has_f16c() {  // not a name that every compiler's __builtin_cpu_supports knows
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() {
  static const bool yes = __builtin_cpu_supports("avx2") && has_f16c();
  return yes && !plain_forced;
}
#endif

template <typename Format>
void widen_array(const void* source, float* destination, std::size_t count) {
  const auto* bits = static_cast<const std::uint16_t*>(source);
#ifdef PL_X86
  if (has_avx2()) return widen_avx2(Format{}, bits, destination, count);
#endif
  widen_plain<Format>(bits, destination, count);
}

template <typename Format>
void narrow_array(const float* source, void* destination, std::size_t count) {
  auto* bits = static_cast<std::uint16_t*>(destination);
#ifdef PL_X86
  if (has_avx2()) return narrow_avx2(Format{}, source, bits, count);
#endif
  narrow_plain<Format>(source, bits, count);
}

template <typename Format>
void round_array(float* values, std::size_t count) {
#ifdef PL_X86
  if (has_avx2()) return round_avx2(Format{}, values, count);
#endif
  round_plain<Format>(values, count);
}

}  // namespace

void widen(const void* source, DType type, float* destination, std::size_t count) {
  switch (type) {
    case DType::kF16:
      return widen_array<Half>(source, destination, count);
    case DType::kBF16:
      return widen_array<Bfloat>(source, destination, count);
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
      return narrow_array<Half>(source, destination, count);
    case DType::kBF16:
      return narrow_array<Bfloat>(source, destination, count);
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
  if (type == DType::kF16) round_array<Half>(values, count);
  if (type == DType::kBF16) round_array<Bfloat>(values, count);
}

void force_plain_precision(bool on) { plain_forced = on; }

float round_to(DType type, float value) {
  if (type == DType::kF16) return f16_to_float(float_to_f16(value));
  if (type == DType::kBF16) return bf16_to_float(float_to_bf16(value));
  return value;
}

}  // namespace plumbline
