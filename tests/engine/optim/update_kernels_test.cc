// Adam and SGD: every combination of precisions against one element's arithmetic, written down in fp32 here (equal
// bits) and in double (close).
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "engine/optim/kernels.h"
#include "tests/engine/optim/arrays.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

using test::Array;
using test::difficult_floats;
constexpr std::array kTypes{DType::kF32, DType::kF16, DType::kBF16};

float rounded(DType type, float value) {
  Array one(type, {value});
  return one.at(0);
}

// What kernels.h promises for one element.
void adam_element(const kernels::AdamUpdate& u, float gradient, float& p, float& m, float& v) {
  const double step = static_cast<double>(u.step);
  const auto rate = static_cast<float>(u.lr / (1.0 - std::pow(u.beta1, step)));
  const auto root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(u.beta2, step)));
  float g = gradient * u.gradient_factor;
  if (!u.decoupled && u.weight_decay != 0.0) g = g + static_cast<float>(u.weight_decay) * p;
  m = static_cast<float>(u.beta1) * m + static_cast<float>(1.0 - u.beta1) * g;
  v = static_cast<float>(u.beta2) * v + static_cast<float>(1.0 - u.beta2) * g * g;
  const float kept = u.decoupled ? p * static_cast<float>(1.0 - u.lr * u.weight_decay) : p;
  p = kept - rate * m / (std::sqrt(v) * root + static_cast<float>(u.eps));
}

kernels::AdamUpdate some_update() {
  kernels::AdamUpdate update;
  update.lr = *rc::gen::element(1e-3, 0.5, 0.0).as("lr");
  update.weight_decay = *rc::gen::element(0.0, 0.1).as("weight decay");
  update.decoupled = *rc::gen::arbitrary<bool>().as("decoupled");
  update.step = *rc::gen::element<std::int64_t>(1, 2, 1000).as("step");
  update.gradient_factor = *rc::gen::element(1.0f, 0.25f, 1.0f / 3.0f).as("factor");
  return update;
}

TEST(AdamKernel, EveryPrecisionEqualsTheElementRule) {
  test::check_cases(4'000, [] {
    const auto type = [](const char* name) { return (*rc::gen::elementOf(kTypes).as(name)); };
    const auto count = *rc::gen::inRange<std::size_t>(0, 700).as("elements");
    const auto seed = *rc::gen::arbitrary<std::uint32_t>().as("seed");
    const auto kind = *rc::gen::inRange(0, test::kDifficultKinds).as("kind of gradient");
    const auto shift = *rc::gen::inRange<std::size_t>(0, 9).as("shift");
    const bool model = *rc::gen::arbitrary<bool>().as("model copy");
    const kernels::AdamUpdate update = some_update();

    const Array g(type("gradient"), difficult_floats(seed, count, kind), shift);
    const Array p(type("parameter"), difficult_floats(seed + 1, count, 0), shift / 2);
    std::vector<float> squares = difficult_floats(seed + 3, count, 0);
    for (float& square : squares) square *= square;
    const Array m(type("first"), difficult_floats(seed + 2, count, 0), shift / 3);
    const Array v(type("second"), squares, shift);
    const Array w(type("model"), std::vector<float>(count), shift);

    Array p1 = p, m1 = m, v1 = v, w1 = w;
    for (std::size_t i = 0; i < count; ++i) {
      float pi = p.at(i), mi = m.at(i), vi = v.at(i);
      adam_element(update, g.at(i), pi, mi, vi);
      p1.set(i, pi);
      m1.set(i, mi);
      v1.set(i, vi);
      if (model) w1.set(i, rounded(p.type(), pi));
    }
    for (const bool plain : {false, true}) {
      Array g2 = g, p2 = p, m2 = m, v2 = v, w2 = w;
      kernels::AdamArrays arrays{count,     g2.data(), g2.type(), p2.data(), p2.type(), m2.data(),
                                 m2.type(), v2.data(), v2.type(), nullptr,   w2.type()};
      if (model) arrays.model = w2.data();
      kernels::force_plain_optim(plain);
      kernels::adam(update, arrays);
      kernels::force_plain_optim(false);
      RC_ASSERT(g2 == g);
      RC_ASSERT(p2 == p1);
      RC_ASSERT(m2 == m1);
      RC_ASSERT(v2 == v1);
      RC_ASSERT(w2 == w1);
    }
  });
}

TEST(AdamKernel, FollowsTheFormulaInDouble) {
  for (const bool decoupled : {true, false}) {
    constexpr std::size_t kCount = 1000;
    std::vector<float> p = difficult_floats(1, kCount, 0), m(kCount), v(kCount);
    std::vector<double> rp(p.begin(), p.end()), rm(kCount), rv(kCount);
    kernels::AdamUpdate update;
    update.lr = 0.01;
    update.weight_decay = 0.1;
    update.decoupled = decoupled;
    for (update.step = 1; update.step <= 5; ++update.step) {
      const auto g = difficult_floats(static_cast<std::uint64_t>(update.step), kCount, 0);
      kernels::AdamArrays arrays;
      arrays.count = kCount;
      arrays.gradient = g.data();
      arrays.parameter = p.data();
      arrays.first = m.data();
      arrays.second = v.data();
      kernels::adam(update, arrays);
      const double t = static_cast<double>(update.step);
      for (std::size_t i = 0; i < kCount; ++i) {
        const double gi = static_cast<double>(g[i]) + (decoupled ? 0.0 : 0.1 * rp[i]);
        rm[i] = 0.9 * rm[i] + 0.1 * gi;
        rv[i] = 0.999 * rv[i] + 0.001 * gi * gi;
        const double hat = rm[i] / (1.0 - std::pow(0.9, t));
        const double root = std::sqrt(rv[i] / (1.0 - std::pow(0.999, t)));
        rp[i] = (decoupled ? rp[i] * (1.0 - 0.001) : rp[i]) - 0.01 * hat / (root + 1e-8);
        ASSERT_NEAR(static_cast<double>(p[i]), rp[i], 4e-6) << "element " << i << ", step " << t;
      }
    }
  }
}

TEST(AdamKernel, ClippingIsAFactorOnTheGradient) {
  const std::vector<float> gradient{2.0f, -4.0f}, half{1.0f, -2.0f};
  const auto run = [](const std::vector<float>& g, float factor) {
    std::vector<float> p{1.0f, 1.0f}, m(2), v(2);
    kernels::AdamUpdate update;
    update.gradient_factor = factor;
    kernels::AdamArrays arrays;
    arrays.count = 2;
    arrays.gradient = g.data();
    arrays.parameter = p.data();
    arrays.first = m.data();
    arrays.second = v.data();
    kernels::adam(update, arrays);
    p.insert(p.end(), m.begin(), m.end());
    p.insert(p.end(), v.begin(), v.end());
    return p;
  };
  EXPECT_EQ(run(gradient, 0.5f), run(half, 1.0f));
}

TEST(SgdKernel, EqualsTheElementRule) {
  test::check_cases(3'000, [] {
    const auto count = *rc::gen::inRange<std::size_t>(0, 700).as("elements");
    const auto seed = *rc::gen::arbitrary<std::uint32_t>().as("seed");
    const auto kind = *rc::gen::inRange(0, test::kDifficultKinds).as("kind of gradient");
    const bool model = *rc::gen::arbitrary<bool>().as("model copy");
    const auto model_type = *rc::gen::elementOf(kTypes).as("model");
    kernels::SgdUpdate update;
    update.lr = 0.1;
    update.momentum = *rc::gen::element(0.0, 0.9).as("momentum");
    update.weight_decay = *rc::gen::element(0.0, 0.01).as("weight decay");
    update.first_step = *rc::gen::arbitrary<bool>().as("first step");
    update.gradient_factor = *rc::gen::element(1.0f, 0.3f).as("factor");

    const auto g = difficult_floats(seed, count, kind);
    const auto p = difficult_floats(seed + 1, count, 0), b = difficult_floats(seed + 2, count, 0);
    Array p1(DType::kF32, p), b1(DType::kF32, b), w1(model_type, std::vector<float>(count));
    for (std::size_t i = 0; i < count; ++i) {
      float gi = g[i] * update.gradient_factor;
      if (update.weight_decay != 0.0) gi = gi + 0.01f * p[i];
      if (update.momentum != 0.0) {
        gi = update.first_step ? gi : 0.9f * b[i] + gi;
        b1.set(i, gi);
      }
      p1.set(i, p[i] - 0.1f * gi);
      if (model) w1.set(i, p1.at(i));
    }
    for (const bool plain : {false, true}) {
      Array p2(DType::kF32, p), b2(DType::kF32, b), w2(model_type, std::vector<float>(count));
      kernels::force_plain_optim(plain);
      kernels::sgd(update, count, g.data(), static_cast<float*>(p2.data()),
                   update.momentum == 0.0 ? nullptr : static_cast<float*>(b2.data()),
                   model ? w2.data() : nullptr, model_type);
      kernels::force_plain_optim(false);
      RC_ASSERT(p2 == p1);
      RC_ASSERT(b2 == b1);
      RC_ASSERT(w2 == w1);
    }
  });
}

}  // namespace
}  // namespace plumbline
