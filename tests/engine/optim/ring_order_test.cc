// What another order of the data-parallel sum does to a step. Two orders of n terms g each are within
// gamma(n-1) * sum|g| of the exact sum, gamma(k) = k u / (1 - k u), u = 2^-24 (Higham, Accuracy and Stability of
// Numerical Algorithms, 4.2), so they differ by at most twice that; an SGD step carries the difference on, times the
// learning rate, with the roundings of its own operations: decay added, product with the rate, subtraction.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/engine/optim/distributed_support.h"
#include "tests/support/property.h"

namespace plumbline::test::distributed {
namespace {

constexpr double kUnit = 1.0 / (1 << 24);
constexpr double kSlack = 1.0 + 1e-5;  // products of roundings that the sums below leave out

struct Difference {
  double largest_share = 0.0;  // of the bound
  int elements = 0;            // that differ at all
};

Case draw_ring_case() {
  Case c;
  c.type = at::kFloat;
  c.dp = *rc::gen::inRange(2, 9).as("dp");
  c.sizes = *few<std::int64_t>(3, rc::gen::inRange<std::int64_t>(1, 90)).as("sizes");
  if (c.sizes.empty()) c.sizes.push_back(40);
  c.bucket_size = *rc::gen::element<std::int64_t>(0, 64, 150).as("bucket size");
  c.clip = 0.0;
  c.rule.rule = BaseOptimizerOptions::Rule::kSgd;
  c.lr = *rc::gen::element(1.0, 1e-2, 3e-5).as("lr");
  return c;
}

// Bound on what the order may do to element `e` of parameter `p`.
double bound_of(const Case& c, int p, std::int64_t e, double start) {
  double magnitudes = 0.0;
  for (int r = 0; r < c.dp; ++r) {
    const at::Tensor gradient = gradient_of(c, 0, r, p).mul(static_cast<float>(c.gradient_scale()));
    magnitudes += std::fabs(static_cast<double>(gradient.data_ptr<float>()[e]));
  }
  const double terms = (c.dp - 1) * kUnit;
  const double sums = 2.0 * terms / (1.0 - terms) * magnitudes;
  const double step = (magnitudes + 0.1 * std::fabs(start)) * kSlack;  // weight decay 0.1 (groups_of)
  return kSlack * (c.lr * (sums + 6.0 * kUnit * step) + 2.0 * kUnit * (std::fabs(start) + c.lr * step));
}

void compare(const Case& c, const std::vector<ParameterPtr>& before, Rank& ring, Rank& ordered,
             Difference& seen) {
  for (int p = 0; p < static_cast<int>(before.size()); ++p) {
    const auto index = static_cast<std::size_t>(p);
    const float* start = before[index]->value.data_ptr<float>();
    const float* a = ring.params[index]->value.data_ptr<float>();
    const float* b = ordered.params[index]->value.data_ptr<float>();
    for (std::int64_t e = 0; e < before[index]->numel(); ++e) {
      const double apart = std::fabs(static_cast<double>(a[e]) - static_cast<double>(b[e]));
      const double bound = bound_of(c, p, e, static_cast<double>(start[e]));
      RC_ASSERT(apart <= bound);
      seen.largest_share = std::max(seen.largest_share, apart / bound);
      seen.elements += apart > 0.0 ? 1 : 0;
    }
  }
}

TEST(DistributedOptimizerProperty, RingOrderStaysWithinTheDerivedBound) {
  Difference seen;
  check_cases(10'000, [&] {
    const Case c = draw_ring_case();
    Cluster ring(c), ordered(c);
    ring.ring_order = true;
    ring.train(0);
    ordered.train(0);
    // Whatever the order, all ranks of a cluster hold the same.
    for (const Rank& rank : ring.ranks) {
      for (std::size_t p = 0; p < rank.params.size(); ++p)
        RC_ASSERT(same(rank.params[p]->value, ring.ranks.front().params[p]->value));
    }
    compare(c, model_of(c), ring.ranks.front(), ordered.ranks.front(), seen);
  });
  // Orders do differ, and the bound is not so wide that it would say nothing.
  EXPECT_GT(seen.elements, 1000);
  EXPECT_GT(seen.largest_share, 0.05);
}

}  // namespace
}  // namespace plumbline::test::distributed
