// Timers of a run under the names that Megatron's log has (--timing-log-level 2), from what a record
// measured: how long each rank spent on what in a step. Megatron reads its host's clock around calls that
// wait; here a communication counts from where it occupied its stream to its end, so a rank that waits for
// another shows it in the same rows.
//
//   forward-compute, backward-compute      F, and B (or I and W)
//   forward-recv, forward-send             activations; Megatron times a call that does two of them as one
//   backward-recv, backward-send           gradients
//   forward-backward                       from the first of these to the end of the last
//   all-grads-sync                         reductions of the gradient buffers
//   embedding-grads-all-reduce             the tied embedding's
//   params-all-gather                      of a sharded optimizer
//   optimizer-unscale-and-check-inf        with the agreement on it
//   optimizer-clip-main-grad               the norm and its reduction; the multiplication is the inner step's
//   optimizer-inner-step                   clip, step, copy back
//   interval-time                          the step
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/run_record.h"

namespace plumbline {

struct TimerRow {
  std::string name;
  // Mean over the training steps (the first is left out where there are more), of the rank with the least, and with
  // the most of it; ranks without it do not count.
  double least = 0.0, most = 0.0;  // nanoseconds
  int ranks = 0;                   // that have it
};

// Those that the record has anything of, in the order above.
std::vector<TimerRow> megatron_timers(const RunRecord& record);

}  // namespace plumbline
