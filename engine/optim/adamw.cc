#include "engine/optim/adamw.h"

#include <bit>
#include <cmath>

#include "engine/base/assert.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#endif

namespace plumbline {

void adamw(const AdamWUpdate& update, std::span<const float> gradient, std::span<float> parameter,
           std::span<float> first, std::span<float> second) {
  PL_ASSERT(gradient.size() == parameter.size());
  PL_ASSERT(first.size() == parameter.size() && second.size() == parameter.size());
  const double step = static_cast<double>(update.step);
  const double correct1 = 1.0 - std::pow(update.beta1, step);
  const double correct2 = 1.0 - std::pow(update.beta2, step);
  const float b1 = static_cast<float>(update.beta1), rest1 = static_cast<float>(1.0 - update.beta1);
  const float b2 = static_cast<float>(update.beta2), rest2 = static_cast<float>(1.0 - update.beta2);
  const float rate = static_cast<float>(update.lr / correct1);
  const float root = static_cast<float>(1.0 / std::sqrt(correct2));
  const float keep = static_cast<float>(1.0 - update.lr * update.weight_decay);
  const float eps = static_cast<float>(update.eps);
  const float factor = update.gradient_factor;
  const float* __restrict g = gradient.data();
  float* __restrict p = parameter.data();
  float* __restrict m = first.data();
  float* __restrict v = second.data();
  const std::size_t count = parameter.size();
  for (std::size_t i = 0; i < count; ++i) {
    const float gi = g[i] * factor;
    const float mi = b1 * m[i] + rest1 * gi;
    const float vi = b2 * v[i] + rest2 * gi * gi;
    m[i] = mi;
    v[i] = vi;
    p[i] = p[i] * keep - rate * mi / (std::sqrt(vi) * root + eps);
  }
}

double sum_of_squares(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

double norm_of_sums(std::span<const double> sums) {
  double sum = 0.0;
  for (const double value : sums) sum += value;
  return std::sqrt(sum);
}

float clip_factor(double norm, double limit) {
  if (!(limit > 0.0)) return 1.0f;
  const double factor = limit / (norm + 1e-6);
  return factor < 1.0 ? static_cast<float>(factor) : 1.0f;
}

bool scale_and_check(std::span<float> values, float factor) {
  std::uint32_t bad = 0;
  for (float& value : values) {
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(value) & 0x7f800000u;
    bad |= static_cast<std::uint32_t>(exponent == 0x7f800000u);
    value *= factor;
  }
  return bad == 0;
}

}  // namespace plumbline
