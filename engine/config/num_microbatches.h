// How many microbatches a step has, as samples are consumed: constant, ramp-up, or a step schedule
// (megatron/core/num_microbatches_calculator.py; specs: megatron.md B.10).
//
// `running` is the global batch that is really run: with `decrease_if_needed` rounded down to a multiple of
// micro_batch_size * dp. A step of no microbatch at all is refused here (upstream lets it through).
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

  static Result<NumMicrobatches> constant(std::int64_t global_batch_size, Shape shape,
                                          bool decrease_if_needed);
  static Result<NumMicrobatches> ramp_up(std::int64_t global_batch_size, RampUp ramp, Shape shape,
                                         bool decrease_if_needed);
  static Result<NumMicrobatches> steps(Steps steps, Shape shape);
  // "0:16 100K:32 5M:64"; suffixes K, M, B, T; with a sequence length the thresholds are tokens.
  static Result<Steps> parse_steps(std::string_view text, std::int64_t seq_length = 0);

  // The step that begins after `consumed` samples. With `check` a batch that is not a multiple of
  // micro_batch_size * dp is an error (Megatron's consistency check); without, the division rounds down.
  Result<Batch> at(std::int64_t consumed, bool check = true) const;

  // Every distinct batch of a run of `iterations` steps from `consumed` on, in order of appearance: (first
  // iteration with it, counted from 0, and the batch).
  Result<std::vector<std::pair<std::int64_t, Batch>>> plan(std::int64_t consumed,
                                                           std::int64_t iterations) const;
  // Steps needed for `samples` samples in all, and the other way round.
  Result<std::int64_t> iterations_for(std::int64_t samples) const;
  Result<std::int64_t> samples_for(std::int64_t iterations) const;

 private:
  enum class Kind : std::uint8_t { kConstant, kRampUp, kSteps };
  Kind kind_ = Kind::kConstant;
  std::int64_t target_ = 1;
  RampUp ramp_;
  Steps steps_;
  Shape shape_;
  bool decrease_ = false;
};

}  // namespace plumbline
