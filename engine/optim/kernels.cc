#include "engine/optim/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/base/assert.h"
#include "engine/model/precision.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math")  // and -fno-math-errno, see CMakeLists.txt
#endif

namespace plumbline::kernels {
namespace {

constexpr std::size_t kBlock = 512;  // elements; what a block needs stays in the first-level cache
constexpr std::int32_t kMagnitude = 0x7FFFFFFF;
constexpr std::int32_t kInfinity = 0x7F800000;

// Magnitudes of a block as bit patterns without the sign: infinity is above every finite value, NaN above it.
struct Range {
  std::int32_t before;  // the largest before multiplying
  std::int32_t largest;
  std::uint32_t least;  // of the least one that is not zero, less one; all ones when there is none
};

struct Windows {
  std::uint64_t sum1, sum2;  // of the shifted values' bit patterns
  std::uint64_t left;        // all bits of what was left; zero when nothing was
};

struct AdamFactors {
  float b1, rest1, b2, rest2, rate, root, keep, decay, eps, factor;
};

struct SgdFactors {
  float rate, decay, factor, momentum;
  bool first;
};

bool plain_forced = false;

namespace plain {
#include "engine/optim/kernels_body.h"
}  // namespace plain

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
#include "engine/optim/kernels_body.h"
}  // namespace avx2
#pragma GCC pop_options
bool has_avx2() {
  static const bool yes = __builtin_cpu_supports("avx2");
  return yes && !plain_forced;
}
// Calls the copy that this processor can run.
#define PL_RUN(function, ...) (has_avx2() ? avx2::function(__VA_ARGS__) : plain::function(__VA_ARGS__))
#else
#define PL_RUN(function, ...) plain::function(__VA_ARGS__)
#endif

// Squares are added exactly, in windows of 52 bits, from the top down. Adding 1.5 * 2^52 * unit to a value of
// magnitude at most 2^51 * unit rounds it to a multiple of the unit, and the bit pattern of the result is that
// of the summand plus the multiple: so bit patterns are added as integers. What rounding left over is exact in a
// double, at most half a unit, and goes into the next window. Two windows reach 103 bits down from the largest
// square, enough for values up to 2^27 times smaller than the largest one of their block; a wider block takes as
// many windows as it needs.
double magic(int unit) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + 52 + unit) << 52) * 1.5;
}

int next_window(int unit) { return std::max(unit - 52, ExactSum::kUnit); }

// The unit of the first window for squares of floats below 2^(largest's exponent + 1).
int first_window(std::int32_t largest) { return std::max(2 * (largest >> 23) - 252 - 51, ExactSum::kUnit); }

void add_window(std::uint64_t sum, std::size_t count, int unit, ExactSum& norm) {
  const std::uint64_t shift = std::bit_cast<std::uint64_t>(magic(unit));
  norm.add_scaled(static_cast<std::int64_t>(sum - count * shift), unit);
}

// Whether all bits of all squares are multiples of the unit: the last bit of the least square is.
bool reaches(int unit, std::uint32_t least) {
  const int exponent = std::max(static_cast<int>((least + 1u) >> 23), 1);
  return unit == ExactSum::kUnit || 2 * (exponent - 150) >= unit;
}

// Any block: as many windows as it takes.
void add_wide_block(const float* values, std::size_t count, std::int32_t largest, ExactSum& norm) {
  double rest[kBlock];
  PL_RUN(square_block, values, rest, count);
  int unit = first_window(largest);
  while (true) {
    const Windows window = PL_RUN(one_window, rest, count, magic(unit));
    add_window(window.sum1, count, unit, norm);
    if (window.left == 0) return;
    PL_ASSERT(unit > ExactSum::kUnit);
    unit = next_window(unit);
  }
}

// Counts the values that are not finite, and adds the others.
void add_broken_block(const float* values, std::size_t count, ExactSum& norm) {
  float finite[kBlock];
  for (std::size_t i = 0; i < count; ++i) {
    const bool fine = (std::bit_cast<std::int32_t>(values[i]) & kMagnitude) < kInfinity;
    finite[i] = fine ? values[i] : 0.0f;
    if (!fine) norm.add_not_finite();
  }
  add_wide_block(finite, count, PL_RUN(largest_bits, finite, count), norm);
}

void add_block(const float* values, std::size_t count, const Range& range, ExactSum& norm) {
  if (range.largest == 0) return;
  if (range.largest >= kInfinity) return add_broken_block(values, count, norm);
  const int unit1 = first_window(range.largest);
  const int unit2 = next_window(unit1);
  if (!reaches(unit2, range.least)) return add_wide_block(values, count, range.largest, norm);
  const Windows windows = PL_RUN(two_windows, values, count, magic(unit1), magic(unit2));
  add_window(windows.sum1, count, unit1, norm);
  add_window(windows.sum2, count, unit2, norm);
}

// While one block is worked on in the first-level cache, the next one is fetched.
void fetch(const float* values, std::size_t count) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  for (std::size_t i = 0; i < count; i += kLine) __builtin_prefetch(values + i, 1);
}

// A part of an array in fp32: the array itself where it is fp32, else a widened copy in `buffer`.
template <typename Void>
auto* part_of(Void* array, DType type, std::size_t at) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  return static_cast<Byte*>(array) + at * static_cast<std::size_t>(dtype_bytes(type));
}

const float* read(const void* array, DType type, std::size_t at, std::size_t count, float* buffer) {
  if (type == DType::kF32) return static_cast<const float*>(array) + at;
  widen(part_of(array, type, at), type, buffer, count);
  return buffer;
}

float* open(void* array, DType type, std::size_t at, std::size_t count, float* buffer) {
  if (type == DType::kF32) return static_cast<float*>(array) + at;
  widen(part_of(array, type, at), type, buffer, count);
  return buffer;
}

void close(float* values, void* array, DType type, std::size_t at, std::size_t count) {
  if (type == DType::kF32) return;
  narrow(values, type, part_of(array, type, at), count);
}

AdamFactors factors_of(const AdamUpdate& update) {
  const double step = static_cast<double>(update.step);
  const double correct1 = 1.0 - std::pow(update.beta1, step);
  const double correct2 = 1.0 - std::pow(update.beta2, step);
  AdamFactors k{};
  k.b1 = static_cast<float>(update.beta1);
  k.rest1 = static_cast<float>(1.0 - update.beta1);
  k.b2 = static_cast<float>(update.beta2);
  k.rest2 = static_cast<float>(1.0 - update.beta2);
  k.rate = static_cast<float>(update.lr / correct1);
  k.root = static_cast<float>(1.0 / std::sqrt(correct2));
  k.keep = update.decoupled ? static_cast<float>(1.0 - update.lr * update.weight_decay) : 1.0f;
  k.decay = update.decoupled ? 0.0f : static_cast<float>(update.weight_decay);
  k.eps = static_cast<float>(update.eps);
  k.factor = update.gradient_factor;
  return k;
}

}  // namespace

void force_plain_optim(bool on) {
  plain_forced = on;
  force_plain_precision(on);
}

bool unscale_check_norm(float* values, std::size_t count, float factor, ExactSum* norm) {
  bool finite = true;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t part = std::min(kBlock, count - at);
    const Range range = PL_RUN(scale_block, values + at, part, factor);
    finite = finite && range.before < kInfinity;
    if (norm == nullptr) continue;
    fetch(values + at + part, std::min(kBlock, count - at - part));
    add_block(values + at, part, range, *norm);
  }
  return finite;
}

void add_squares(const float* values, std::size_t count, ExactSum& norm) {
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t part = std::min(kBlock, count - at);
    const Range range = PL_RUN(range_of, values + at, part);
    fetch(values + at + part, std::min(kBlock, count - at - part));
    add_block(values + at, part, range, norm);
  }
}

float abs_max(const float* values, std::size_t count) {
  const std::int32_t bits = PL_RUN(largest_bits, values, count);
  return bits > kInfinity ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(bits);
}

double sum_of_powers(const float* values, std::size_t count, double p) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += std::pow(std::fabs(static_cast<double>(values[i])), p);
  return sum;
}

std::int64_t count_zeros(const float* values, std::size_t count) { return PL_RUN(zeros, values, count); }

bool convert(const void* source, DType source_type, void* target, DType target_type, std::size_t count) {
  // The least magnitude that the target makes infinite.
  const std::int32_t limit = target_type == DType::kF16    ? 0x477FF000  // 65520
                             : target_type == DType::kBF16 ? 0x7F7F8000
                                                           : kInfinity;
  float buffer[kBlock];
  std::int32_t largest = 0;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t part = std::min(kBlock, count - at);
    const float* values = read(source, source_type, at, part, buffer);
    largest = std::max(largest, PL_RUN(largest_bits, values, part));
    std::byte* to = part_of(target, target_type, at);
    if (source_type == target_type) {
      std::memmove(to, part_of(source, source_type, at),
                   part * static_cast<std::size_t>(dtype_bytes(source_type)));
    } else {
      narrow(values, target_type, to, part);
    }
  }
  return largest < limit;
}

void adam(const AdamUpdate& update, const AdamArrays& a) {
  PL_ASSERT(update.step >= 1);
  const AdamFactors k = factors_of(update);
  float g_buffer[kBlock], p_buffer[kBlock], m_buffer[kBlock], v_buffer[kBlock];
  for (std::size_t at = 0; at < a.count; at += kBlock) {
    const std::size_t part = std::min(kBlock, a.count - at);
    const float* g = read(a.gradient, a.gradient_type, at, part, g_buffer);
    float* p = open(a.parameter, a.parameter_type, at, part, p_buffer);
    float* m = open(a.first, a.first_type, at, part, m_buffer);
    float* v = open(a.second, a.second_type, at, part, v_buffer);
    PL_RUN(adam_block, k, g, p, m, v, part);
    close(p, a.parameter, a.parameter_type, at, part);
    close(m, a.first, a.first_type, at, part);
    close(v, a.second, a.second_type, at, part);
    if (a.model == nullptr) continue;
    // From the parameter as it is stored, so that a later copy of the stored one changes nothing.
    round_to(a.parameter_type, p, part);
    narrow(p, a.model_type, part_of(a.model, a.model_type, at), part);
  }
}

void sgd(const SgdUpdate& update, std::size_t count, const float* gradient, float* parameter, float* buffer,
         void* model, DType model_type) {
  PL_ASSERT((update.momentum == 0.0) == (buffer == nullptr));
  const SgdFactors k{static_cast<float>(update.lr), static_cast<float>(update.weight_decay),
                     update.gradient_factor, static_cast<float>(update.momentum), update.first_step};
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t part = std::min(kBlock, count - at);
    float* p = parameter + at;
    if (buffer == nullptr) {
      PL_RUN(sgd_block, k, gradient + at, p, part);
    } else {
      PL_RUN(momentum_block, k, gradient + at, p, buffer + at, part);
    }
    if (model != nullptr) narrow(p, model_type, part_of(model, model_type, at), part);
  }
}

}  // namespace plumbline::kernels
