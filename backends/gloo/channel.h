// What the ranks of a Gloo run use beside their Program: small messages among all (storage/control_channel.h)
// and the optimizer's reductions among some (optim/collective.h). Both block, in the calling thread.
#pragma once

#include <memory>
#include <vector>

#include "backends/gloo/driver.h"
#include "backends/gloo/transport.h"
#include "engine/optim/collective.h"
#include "engine/storage/control_channel.h"

namespace plumbline::gloo {

// `transport` and `status` outlive it. One channel a process: its tags are its own. With a status, the watchdog
// looks on during exchanges.
std::unique_ptr<ControlChannel> control_channel(Transport& transport, RankStatus* status = nullptr);

// Another one, for saves that go on beside training: it may be used while the first one is. The watchdog does not look
// on, since a rank may have much to write; a rank that is gone shows at the next exchange of either.
std::unique_ptr<ControlChannel> save_channel(Transport& transport);

// The group of `members` (ascending ranks, the own one among them). Groups whose members meet in different
// orders need different `number`s, below 8.
std::shared_ptr<Collective> collective(Transport& transport, std::vector<Rank> members, int number = 0);

}  // namespace plumbline::gloo
