// How many microbatches a step has, as samples are consumed: constant, ramp-up, or a step schedule
// (megatron/core/num_microbatches_calculator.py; the ramp-up as it was until April 2026).
//
// `running` is the global batch that is run: with `decrease_if_needed` rounded down to a multiple of
// micro_batch_size * dp. A step of no microbatch at all is refused here (upstream lets it through).
//
//   ramp-up: start + increment * floor(consumed / (samples / ((global - start) / increment))) while consumed
//            is at most `samples` (in double, as upstream), then the global batch
//   steps:   the batch of the last threshold that is not above consumed
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

class NumMicrobatches {
 public:
  struct Batch {
    std::int64_t num_microbatches = 1;
    std::int64_t current = 1;  // global batch the schedule asks for
    std::int64_t running = 1;  // and the one that is run
    bool operator==(const Batch&) const = default;
  };
  struct Shape {
    std::int64_t micro_batch_size = 1;
    std::int64_t data_parallel_size = 1;
  };
  struct RampUp {
    std::int64_t start = 1, increment = 1, samples = 0;
  };
  using Steps = std::vector<std::pair<std::int64_t, std::int64_t>>;  // (threshold in samples, global batch)

  // All three refuse sizes that are not positive, with the rule they break.
  static Result<NumMicrobatches> constant(std::int64_t global_batch_size, Shape shape,
                                          bool decrease_if_needed);
  // The way from start to the global batch must be at least one increment, a whole number of them, and take
  // at least one sample.
  static Result<NumMicrobatches> ramp_up(std::int64_t global_batch_size, RampUp ramp, Shape shape,
                                         bool decrease_if_needed);
  // The first threshold must be 0 and thresholds must grow.
  static Result<NumMicrobatches> steps(Steps steps, Shape shape);
  // "0:16 100K:32 2.5M:64", in any order, blanks or commas between; suffixes K, M, B, T are powers of 1000.
  // With a sequence length the thresholds are tokens, and rounded down to samples.
  static Result<Steps> parse_steps(std::string_view text, std::int64_t seq_length = 0);

  // The step that begins after `consumed` samples. With `check` a batch that is not a multiple of
  // micro_batch_size * dp is an error (Megatron's consistency check); without, the division rounds down.
  Result<Batch> at(std::int64_t consumed, bool check = true) const;

  // The batches of a run of `iterations` steps from `consumed` on: (first iteration with it, counted from
  // 0, and the batch), one entry for each stretch of equal batches. The check is on; only what the run
  // reaches counts.
  using Plan = std::vector<std::pair<std::int64_t, Batch>>;
  Result<Plan> plan(std::int64_t consumed, std::int64_t iterations) const;
  // Whole steps of a run of `samples` samples from 0 on; what is left after them is less than a step
  // (Megatron's train_samples, too, rounds down). And the other way round: the samples of that many steps.
  Result<std::int64_t> iterations_for(std::int64_t samples) const { return iterations_between(0, samples); }
  // ... when `consumed` of them are behind.
  Result<std::int64_t> iterations_between(std::int64_t consumed, std::int64_t samples) const;
  Result<std::int64_t> samples_for(std::int64_t iterations) const;

 private:
  enum class Kind : std::uint8_t { kConstant, kRampUp, kSteps };
  struct Stretch {
    Batch batch;
    std::int64_t iterations = 0;  // with this batch
  };
  std::int64_t wanted(std::int64_t consumed) const;       // global batch the schedule asks for
  std::int64_t next_change(std::int64_t consumed) const;  // first number of samples with another one
  Result<Stretch> stretch(std::int64_t consumed) const;   // the equal steps that begin at `consumed`

  Kind kind_ = Kind::kConstant;
  std::int64_t target_ = 1;
  RampUp ramp_;
  Steps steps_;
  Shape shape_;
  bool decrease_ = false;
};

}  // namespace plumbline
