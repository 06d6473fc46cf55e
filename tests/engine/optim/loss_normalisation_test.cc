#include "engine/optim/loss_normalisation.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plumbline {
namespace {

TEST(LossNormalisation, MeansDifferWithUnequalCountsOnly) {
  const std::vector<TokenSum> unequal{{2.0, 2}, {24.0, 8}}, equal{{4.0, 4}, {12.0, 4}};
  EXPECT_EQ(step_loss(LossMean::kMicrobatch, unequal), 2.0);
  EXPECT_DOUBLE_EQ(step_loss(LossMean::kToken, unequal), 2.6);
  EXPECT_EQ(step_loss(LossMean::kMicrobatch, equal), step_loss(LossMean::kToken, equal));
  EXPECT_NE(loss_mean_text(LossMean::kMicrobatch), loss_mean_text(LossMean::kToken));
}

TEST(LossNormalisation, ACountIsNeverLessThanOneAsADivisor) {
  EXPECT_EQ(token_mean({0.0, 0}), 0.0);
  EXPECT_EQ(token_mean({3.0, 0}), 3.0);
  EXPECT_EQ(final_factor(LossMean::kToken, 0), 1.0);
  EXPECT_EQ(backward_factor(LossMean::kMicrobatch, 0, 4), 0.25);
  EXPECT_EQ(auxiliary_factor(8, 0), 8.0);
  EXPECT_EQ(step_loss(LossMean::kToken, {}), 0.0);
}

TEST(LossNormalisation, ContextRanksAreMultipliedBackForMicrobatchMeans) {
  EXPECT_EQ(backward_factor(LossMean::kMicrobatch, 4, 2, 2), 0.25);
  EXPECT_EQ(backward_factor(LossMean::kToken, 4, 2, 2), 1.0);
}

TEST(LossNormalisation, OnlyAnEmptyMaskIsAFalseOverflow) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(false_overflow(std::vector<TokenSum>{{6.0, 3}, {1.0, 1}}), "");
  EXPECT_EQ(false_overflow(std::vector<TokenSum>{{inf, 3}, {inf, 0}}), "");
  EXPECT_NE(false_overflow(std::vector<TokenSum>{{6.0, 3}, {0.0, 0}}).find("mask of rank 1 is empty"),
            std::string::npos);
}

// Integers, so that sums are exact in any order: the token mean knows nothing of the split.
RC_GTEST_PROP(LossNormalisation, TheTokenMeanDoesNotDependOnTheSplit, ()) {
  const auto tokens = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-1000, 1000));
  const auto cuts =
      *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, tokens.size() + 1));
  std::vector<TokenSum> split(1), whole(1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (std::find(cuts.begin(), cuts.end(), i) != cuts.end()) split.emplace_back();
    for (TokenSum* part : {&split.back(), &whole.back()}) {
      part->sum += tokens[i];
      ++part->tokens;
    }
  }
  RC_ASSERT(step_loss(LossMean::kToken, split) == step_loss(LossMean::kToken, whole));
  RC_ASSERT(mean_over_ranks(split) == mean_over_ranks(whole));
}

}  // namespace
}  // namespace plumbline
