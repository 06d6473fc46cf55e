// How the loss of a step becomes a mean, and its gradients with it (megatron/core/pipeline_parallel/schedules.py,
// core/distributed/finalize_model_grads.py; option calculate_per_token_loss).
//
//   kMicrobatch   every microbatch counts the same: its sum is divided by its own tokens, then by the number of
//                 microbatches. Microbatches with few tokens weigh more for each token.
//   kToken        every token counts the same: backwards run on plain sums, and at the end all gradients are
//                 divided by the tokens of the whole step, over all microbatches and data-parallel ranks. Does not
//                 depend on how the tokens are split.
//
// With equal counts both are one number; plumbline's own models have equal counts and use kMicrobatch. A count
// is never less than 1 as a divisor, so an empty mask gives 0 and not NaN - a NaN here would look like an
// overflow and the step would be skipped (false_overflow() tells them apart).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plumbline {

enum class LossMean : std::uint8_t { kMicrobatch, kToken };

// One sentence: which mean this is.
std::string_view loss_mean_text(LossMean mean);

// Loss (or gradient) added up over the unmasked tokens of one microbatch, or of one rank's part of it.
struct TokenSum {
  double sum = 0.0;
  std::int64_t tokens = 0;
};

// sum / max(tokens, 1).
double token_mean(const TokenSum& part);

// What the loss sum of one microbatch is multiplied with before its backward. `context_ranks`: with kMicrobatch a
// sequence split over context-parallel ranks is averaged by the gradient reduction again, so its loss is
// multiplied by their number first.
double backward_factor(LossMean mean, std::int64_t tokens, int microbatches, int context_ranks = 1);

// What all gradients are multiplied with after the last reduction; `tokens` are those of the whole step.
double final_factor(LossMean mean, std::int64_t tokens);

// For the loss of a layer with a mask of its own (a multi-token prediction head, a router): kToken divides all
// gradients by the main mask's tokens, so the auxiliary sum is multiplied by main / auxiliary first and its mean
// is over its own tokens.
double auxiliary_factor(std::int64_t main_tokens, std::int64_t auxiliary_tokens);

// The loss of a step, as the two factors make it.
double step_loss(LossMean mean, std::span<const TokenSum> microbatches);

// The loss over context-parallel (or data-parallel) parts of one microbatch: sum of sums / sum of counts.
double mean_over_ranks(std::span<const TokenSum> parts);

// Empty when no part's plain mean (without the lower bound of 1) is a NaN made by an empty mask. Else the
// sentence that names the ranks (positions in `parts`): a skip caused by it is no overflow, and no loss scale
// helps.
std::string false_overflow(std::span<const TokenSum> parts);

}  // namespace plumbline
