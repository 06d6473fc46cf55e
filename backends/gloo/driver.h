// The driver of one rank: the host goes on until it waits, then the kernel whose turn it is runs, and with
// nothing to do it sleeps until a message is through. It never gives up by itself: a watchdog looks on from a
// thread of its own, by what the RankStatus shows.
#pragma once

#include "backends/gloo/backend.h"
#include "backends/gloo/transport.h"
#include "engine/runtime/rank_status.h"
#include "engine/train/driver.h"

namespace plumbline::gloo {

// Runs the part of `transport`'s rank. Both outlive the driver, which shows where it
// stands; of [sim], strict host order and launch_blocking
// hold here too.
DriverFactory driver(Transport& transport, RankStatus& status, Nanoseconds epoch);

}  // namespace plumbline::gloo
