// DeepSpeed's instruction streams (deepspeed/runtime/pipe/schedule.py, TrainSchedule and InferenceSchedule),
// written a rank a line: ';' separates steps, ',' the instructions of a step, a number is a buffer.
//
//   L0 F0 B0   load, forward, backward          SA0 RA0   send, receive activation      SG0 RG0   the same of gradients
//   RT R O     reduce tied weights' gradients, reduce gradients, optimizer step
//
// Both directions alternate between even and odd ranks, so that a send never meets a send. Training orders
// computations as 1F1B does, inference forwards alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

// One rank's stream of DeepSpeed for `ranks` ranks and `microbatches` microbatches.
std::string deepspeed_stream(int ranks, int rank, int microbatches, bool train);

// A row a rank of a schedule in DeepSpeed's streams. Errors: an order that is neither 1F1B's nor forward-only's,
// since DeepSpeed has no other.
Result<std::string> print_deepspeed(const Schedule& schedule);

// Reads streams, by DeepSpeed or anyone: computations, sends, receives, and R as REDUCE_GRAD. What is in a buffer
// decides the microbatch; the k-th load or receive of a rank is microbatch k. L of the last rank (its labels), RT
// and O are passed over. Errors name line and column: unknown instructions, a buffer that holds nothing of what is
// asked for.
Result<Schedule> parse_deepspeed(std::string_view text, const std::string& name);

}  // namespace plumbline
