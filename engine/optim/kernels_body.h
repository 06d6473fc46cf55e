// no-guard: kernels.cc includes it once for any processor and once for AVX2
//
// The loops behind kernels.h, in the manner of engine/model/kernels_body.h: both copies give the same bits,
// because fp contraction is off and every sum is one of integers. No templates and no lambdas: their instances
// would lose the target.

// values[i] *= factor.
inline Range scale_block(float* values, std::size_t count, float factor) {
  std::int32_t before = 0, largest = 0;
  std::uint32_t least = ~0u;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = values[i];
    const float product = value * factor;
    const std::int32_t in = __builtin_bit_cast(std::int32_t, value) & kMagnitude;
    const std::int32_t out = __builtin_bit_cast(std::int32_t, product) & kMagnitude;
    const std::uint32_t below = static_cast<std::uint32_t>(out) - 1u;  // zeros come out on top
    before = in > before ? in : before;
    largest = out > largest ? out : largest;
    least = below < least ? below : least;
    values[i] = product;
  }
  return {before, largest, least};
}

inline Range range_of(const float* values, std::size_t count) {
  std::int32_t largest = 0;
  std::uint32_t least = ~0u;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, values[i]) & kMagnitude;
    const std::uint32_t below = static_cast<std::uint32_t>(bits) - 1u;
    largest = bits > largest ? bits : largest;
    least = below < least ? below : least;
  }
  return {largest, largest, least};
}

inline std::int32_t largest_bits(const float* values, std::size_t count) {
  std::int32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, values[i]) & kMagnitude;
    most = bits > most ? bits : most;
  }
  return most;
}

// The squares through two windows that take all of them (kernels.cc).
inline Windows two_windows(const float* values, std::size_t count, double magic1, double magic2) {
  std::uint64_t sum1 = 0, sum2 = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    const double square = value * value;
    const double shifted1 = square + magic1;
    const double shifted2 = (square - (shifted1 - magic1)) + magic2;
    sum1 += __builtin_bit_cast(std::uint64_t, shifted1);
    sum2 += __builtin_bit_cast(std::uint64_t, shifted2);
  }
  return {sum1, sum2, 0};
}

inline void square_block(const float* __restrict values, double* __restrict squares, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    squares[i] = value * value;
  }
}

// One window of any doubles, which become what is left of them.
inline Windows one_window(double* values, std::size_t count, double magic) {
  std::uint64_t sum = 0, left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double shifted = values[i] + magic;
    const double rest = values[i] - (shifted - magic);
    sum += __builtin_bit_cast(std::uint64_t, shifted);
    left |= __builtin_bit_cast(std::uint64_t, rest);
    values[i] = rest;
  }
  return {sum, 0, left};
}

inline std::int64_t zeros(const float* values, std::size_t count) {
  std::int64_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    found += (__builtin_bit_cast(std::int32_t, values[i]) & kMagnitude) == 0 ? 1 : 0;
  }
  return found;
}

// The gradient an update sees: clipped, and with L2 decay where there is one.
inline float seen(float gradient, float factor, float decay, bool decays, float parameter) {
  const float clipped = gradient * factor;
  return decays ? clipped + decay * parameter : clipped;
}

inline void adam_block(const AdamFactors& k, const float* __restrict g, float* __restrict p,
                       float* __restrict m, float* __restrict v, std::size_t count) {
  const float b1 = k.b1, rest1 = k.rest1, b2 = k.b2, rest2 = k.rest2, rate = k.rate, root = k.root;
  const float keep = k.keep, decay = k.decay, eps = k.eps, factor = k.factor;
  const bool decays = decay != 0.0f;
  for (std::size_t i = 0; i < count; ++i) {
    const float gi = seen(g[i], factor, decay, decays, p[i]);
    const float mi = b1 * m[i] + rest1 * gi;
    const float vi = b2 * v[i] + rest2 * gi * gi;
    m[i] = mi;
    v[i] = vi;
    p[i] = p[i] * keep - rate * mi / (__builtin_sqrtf(vi) * root + eps);
  }
}

inline void sgd_block(const SgdFactors& k, const float* __restrict g, float* __restrict p,
                      std::size_t count) {
  const float rate = k.rate, decay = k.decay, factor = k.factor;
  const bool decays = decay != 0.0f;
  for (std::size_t i = 0; i < count; ++i) p[i] -= rate * seen(g[i], factor, decay, decays, p[i]);
}

// In the first step the buffer becomes the gradient, whatever it held.
inline void momentum_block(const SgdFactors& k, const float* __restrict g, float* __restrict p,
                           float* __restrict buffer, std::size_t count) {
  const float rate = k.rate, decay = k.decay, factor = k.factor, momentum = k.momentum;
  const bool decays = decay != 0.0f, first = k.first;
  for (std::size_t i = 0; i < count; ++i) {
    const float gi = seen(g[i], factor, decay, decays, p[i]);
    const float bi = first ? gi : momentum * buffer[i] + gi;
    buffer[i] = bi;
    p[i] -= rate * bi;
  }
}
