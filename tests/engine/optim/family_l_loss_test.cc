// Public reports about loss normalisation: L30, L31, L33.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/optim/loss_normalisation.h"
#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

// L30: main mask 8 tokens, auxiliary mask 7, auxiliary gradient 1 a token; all gradients are divided by 8 at the end.
TEST(FamilyL, NVIDIAMegatronLM2417AuxiliaryLossIsAMeanOverItsOwnMask) {
  const double sum = 7.0 * 1.0 * backward_factor(LossMean::kToken, 7, 1);
  const double end = final_factor(LossMean::kToken, 8);
  EXPECT_EQ(auxiliary_factor(8, 7), 8.0 / 7.0);
  EXPECT_DOUBLE_EQ(sum * auxiliary_factor(8, 7) * end, 1.0);
  EXPECT_DOUBLE_EQ(sum * end, 0.875);  // the fault
  EXPECT_EQ(auxiliary_factor(8, 8), 1.0);
}

// L31: two context ranks, token counts 3 and 0, loss sums 6 and 0.
TEST(FamilyL, ModelscopeMcoreBridge104AnEmptyMaskIsNoOverflow) {
  const std::vector<TokenSum> parts{{6.0, 3}, {0.0, 0}};
  EXPECT_EQ(mean_over_ranks(parts), 2.0);
  EXPECT_EQ(token_mean(parts[0]), 2.0);
  EXPECT_EQ(token_mean(parts[1]), 0.0);

  // With the lower bound the step is made; without, rank 1's NaN stops both ranks.
  for (const bool bounded : {true, false}) {
    std::array<bool, 2> found{}, success{};
    on_ranks(2, [&](int rank, std::shared_ptr<Collective> group) {
      const auto at = static_cast<std::size_t>(rank);
      MegatronOptimizerOptions options = plain_options();
      options.grad_stats = std::move(group);
      HalfRank one(value_of(LossScaler::constant(8.0)), options);
      const double plain = parts[at].sum / static_cast<double>(parts[at].tokens);
      one.backward({static_cast<float>(bounded ? token_mean(parts[at]) : plain)});
      const StepOutcome outcome = value_of(one.optimizer->step());
      found[at] = outcome.found_inf;
      success[at] = outcome.success;
    });
    EXPECT_EQ(found, (std::array<bool, 2>{!bounded, !bounded}));
    EXPECT_EQ(success, (std::array<bool, 2>{bounded, bounded}));
  }
  // And the root cause is named.
  const std::string cause = false_overflow(parts);
  EXPECT_NE(cause.find("mask of rank 1 is empty"), std::string::npos) << cause;
  EXPECT_NE(cause.find("no overflow"), std::string::npos) << cause;
}

// L33: microbatches of 2 and 8 tokens, gradients 1 and 3 a token.
TEST(FamilyL, NVIDIAMegatronLM4590MeanOfMeansAndTokenMean) {
  const std::vector<TokenSum> unequal{{2.0 * 1.0, 2}, {8.0 * 3.0, 8}}, equal{{5.0 * 1.0, 5}, {5.0 * 3.0, 5}};
  EXPECT_DOUBLE_EQ(step_loss(LossMean::kMicrobatch, unequal), 2.0);
  EXPECT_DOUBLE_EQ(step_loss(LossMean::kToken, unequal), 2.6);
  EXPECT_DOUBLE_EQ(step_loss(LossMean::kMicrobatch, equal), 2.0);
  EXPECT_DOUBLE_EQ(step_loss(LossMean::kToken, equal), 2.0);
  // Which one a configuration means is said in words.
  EXPECT_NE(loss_mean_text(LossMean::kToken).find("every token counts the same"), std::string::npos);
  EXPECT_NE(loss_mean_text(LossMean::kMicrobatch).find("every microbatch counts the same"),
            std::string::npos);
  // The token mean does not see the split; the mean of means does.
  const std::vector<TokenSum> one{{26.0, 10}}, three{{1.0, 1}, {1.0 + 9.0, 4}, {15.0, 5}};
  EXPECT_DOUBLE_EQ(step_loss(LossMean::kToken, one), 2.6);
  EXPECT_DOUBLE_EQ(step_loss(LossMean::kToken, three), 2.6);
  EXPECT_NE(step_loss(LossMean::kMicrobatch, one), step_loss(LossMean::kMicrobatch, three));
}

}  // namespace
}  // namespace plumbline::test
