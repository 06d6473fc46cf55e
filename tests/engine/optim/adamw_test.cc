#include "engine/optim/adamw.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(AdamW, FollowsTheFormulaInDouble) {
  const std::vector<std::vector<float>> gradients{
      {0.5f, -2.0f, 0.0f}, {0.25f, 1.0f, 3.0f}, {-1.0f, 0.125f, 1e-3f}};
  std::vector<float> p{1.0f, -1.0f, 0.5f}, m(3, 0.0f), v(3, 0.0f);
  std::vector<double> rp(p.begin(), p.end()), rm(3, 0.0), rv(3, 0.0);
  AdamWUpdate update;
  update.lr = 0.01;
  update.weight_decay = 0.1;
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    update.step = static_cast<std::int64_t>(t) + 1;
    adamw(update, gradients[t], p, m, v);
    for (std::size_t i = 0; i < 3; ++i) {
      const double g = static_cast<double>(gradients[t][i]);
      rm[i] = 0.9 * rm[i] + 0.1 * g;
      rv[i] = 0.999 * rv[i] + 0.001 * g * g;
      const double hat = rm[i] / (1.0 - std::pow(0.9, static_cast<double>(update.step)));
      const double root = std::sqrt(rv[i] / (1.0 - std::pow(0.999, static_cast<double>(update.step))));
      rp[i] = rp[i] * (1.0 - 0.001) - 0.01 * hat / (root + 1e-8);
      EXPECT_NEAR(static_cast<double>(p[i]), rp[i], 2e-6) << "element " << i << ", step " << t;
    }
  }
}

TEST(AdamW, ClippingIsAFactorOnTheGradient) {
  const std::vector<float> gradient{2.0f, -4.0f}, half{1.0f, -2.0f};
  std::vector<float> p1{1.0f, 1.0f}, m1(2, 0.0f), v1(2, 0.0f), p2 = p1, m2 = m1, v2 = v1;
  AdamWUpdate update;
  adamw(update, half, p1, m1, v1);
  update.gradient_factor = 0.5f;
  adamw(update, gradient, p2, m2, v2);
  EXPECT_EQ(p1, p2);
  EXPECT_EQ(v1, v2);
}

TEST(Clipping, FactorAsMegatronHasIt) {
  EXPECT_EQ(clip_factor(10.0, 0.0), 1.0f);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_factor(4.0, 1.0), static_cast<float>(1.0 / (4.0 + 1e-6)));
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0), 1.0f);
}

TEST(Clipping, NormAddsSquaresInDouble) {
  const std::vector<float> values{3.0f, 1e-20f, 4.0f};
  EXPECT_EQ(sum_of_squares(values), 9.0 + static_cast<double>(1e-20f) * static_cast<double>(1e-20f) + 16.0);
  const std::vector<double> sums{9.0, 16.0};
  EXPECT_EQ(norm_of_sums(sums), 5.0);
}

TEST(ScaleAndCheck, FindsEveryKindOfNonFiniteAndStillMultiplies) {
  std::vector<float> fine{1.0f, 65504.0f, -0.0f, 1e-40f};
  EXPECT_TRUE(scale_and_check(fine, 0.5f));
  EXPECT_EQ(fine[1], 32752.0f);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values{2.0f, bad, 2.0f};
    EXPECT_FALSE(scale_and_check(values, 0.5f));
    EXPECT_EQ(values[2], 1.0f);
  }
}

}  // namespace
}  // namespace plumbline
