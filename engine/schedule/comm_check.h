// The part of validate_schedule that looks at what rows list beside computations: sends and receives, sharding,
// reductions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/schedule.h"
#include "engine/schedule/step_index.h"

namespace plumbline {

// Which messages share a queue, and so must be received in the order in which they are sent: those of one direction
// (activations, or gradients) between two ranks, or all between two ranks. The first holds wherever messages go;
// the second where both directions use one communicator.
enum class ChannelScope : std::uint8_t { kDirection, kPair };

// Rule "channel": the k-th message that one rank sends to another is not the k-th that the other receives. One
// finding a channel, at its first difference. Messages of which only one end is listed are passed over.
std::vector<ScheduleFinding> check_channels(const Schedule& schedule, ChannelScope scope);

namespace detail {

// Rules "duplicate", "missing" and "order" of transfers and reductions, and "sharding". With `fragment` nothing is
// missing.
void check_transfers(const Schedule& schedule, const StepIndex& index, bool fragment,
                     std::vector<ScheduleFinding>* findings);
void check_reductions(const Schedule& schedule, bool fragment, std::vector<ScheduleFinding>* findings);
void check_sharding(const Schedule& schedule, bool fragment, std::vector<ScheduleFinding>* findings);

}  // namespace detail
}  // namespace plumbline
