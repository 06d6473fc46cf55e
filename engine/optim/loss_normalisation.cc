#include "engine/optim/loss_normalisation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace plumbline {
namespace {

double divisor(std::int64_t tokens) { return static_cast<double>(std::max<std::int64_t>(tokens, 1)); }

}  // namespace

std::string_view loss_mean_text(LossMean mean) {
  return mean == LossMean::kMicrobatch
             ? "mean over microbatches of each microbatch's token mean: every microbatch counts the same"
             : "mean over all tokens of the step: every token counts the same";
}

double token_mean(const TokenSum& part) { return part.sum / divisor(part.tokens); }

double backward_factor(LossMean mean, std::int64_t tokens, int microbatches, int context_ranks) {
  if (mean == LossMean::kToken) return 1.0;
  return static_cast<double>(context_ranks) /
         (divisor(tokens) * static_cast<double>(std::max(microbatches, 1)));
}

double final_factor(LossMean mean, std::int64_t tokens) {
  return mean == LossMean::kMicrobatch ? 1.0 : 1.0 / divisor(tokens);
}

double auxiliary_factor(std::int64_t main_tokens, std::int64_t auxiliary_tokens) {
  return divisor(main_tokens) / divisor(auxiliary_tokens);
}

double step_loss(LossMean mean, std::span<const TokenSum> microbatches) {
  const int count = static_cast<int>(microbatches.size());
  double loss = 0.0;
  std::int64_t tokens = 0;
  for (const TokenSum& one : microbatches) {
    loss += one.sum * backward_factor(mean, one.tokens, count);
    tokens += one.tokens;
  }
  return loss * final_factor(mean, tokens);
}

double mean_over_ranks(std::span<const TokenSum> parts) {
  TokenSum all;
  for (const TokenSum& part : parts) {
    all.sum += part.sum;
    all.tokens += part.tokens;
  }
  return token_mean(all);
}

std::string false_overflow(std::span<const TokenSum> parts) {
  std::string ranks;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double plain = parts[i].sum / static_cast<double>(parts[i].tokens);
    if (parts[i].tokens != 0 || std::isfinite(plain)) continue;
    // A sum that is not finite itself is a real overflow.
    if (!std::isfinite(parts[i].sum)) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", i);
  }
  if (ranks.empty()) return {};
  return fmt::format(
      "the mask of rank {} is empty: a mean over 0 tokens is not a number, and the skip it "
      "causes is no overflow — divide by max(tokens, 1), or by the tokens of all ranks",
      ranks);
}

}  // namespace plumbline
