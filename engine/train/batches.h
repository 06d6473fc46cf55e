// Which samples a microbatch holds. All samples of a run are numbered in one order that the layout of stages
// never enters: sample i of microbatch m of replica d, after `consumed` samples, is consumed + (m * dp + d) *
// micro_batch_size + i. So (pp, vp) change nothing, and layouts with the same global batch train on the same
// samples in every step.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/stage.h"
#include "engine/train/text.h"

namespace plumbline {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // With schedule.slices a microbatch is a slice of one: number k is slice k mod slices of microbatch k / slices.
  virtual Batch training(std::int64_t consumed, int replica, int microbatch) const = 0;
  // Step `step` of an evaluation; every evaluation sees the same samples.
  virtual Batch evaluation(int step, int replica, int microbatch) const = 0;
};

std::int64_t samples_per_step(const RunConfig& config);

// Training sample k starts where draw k of CounterRng(seed, "data") says; evaluation samples lie evenly over
// the held-out part. `config` and `text` outlive the source. Refuses texts shorter than a sample.
Result<std::unique_ptr<BatchSource>> text_batches(const RunConfig& config, const Text& text);

// For the toy model: tokens hold the entry, targets its loss weight (model/toy_check.h).
Result<std::unique_ptr<BatchSource>> toy_batches(const RunConfig& config);

}  // namespace plumbline
