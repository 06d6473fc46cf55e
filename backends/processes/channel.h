// A ControlChannel over the store, for ranks whose messages travel by something that has no small ones to give: rank 0
// gathers everyone's message and publishes all of them as one value. Every key is removed once all have read it, so
// that a channel never holds more than a key a rank and one more, however long the run.
#pragma once

#include <memory>
#include <string>

#include "backends/processes/store.h"
#include "engine/config/rank_grid.h"
#include "engine/runtime/rank_status.h"
#include "engine/storage/control_channel.h"

namespace plumbline::processes {

// `store` is a connection of its own, since waiting keeps a connection busy. Channels of one run have different names,
// each the same on all ranks. With a status, which outlives the channel, the watchdog looks on during exchanges;
// without, nobody does: for saves beside training, where a rank may have much to write.
std::unique_ptr<ControlChannel> store_channel(std::unique_ptr<Store> store, const std::string& name,
                                              Rank rank, int world, RankStatus* status = nullptr);

}  // namespace plumbline::processes
