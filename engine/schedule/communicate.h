// Communication for a compute-only order of unknown origin, by torch.distributed.pipelining's rule
// (schedules.py, _add_send_recv): the ranks are visited in turn; a rank's next computation is taken once its
// inputs exist; the send follows it at once and the receive is appended to the peer's row at that very
// moment. All transfers then have one global order, so the result cannot wait in a cycle. Neighbour stages on
// one rank hand over directly.
#pragma once

#include "engine/base/result.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

// Errors: the order cannot run (a computation whose inputs never come), naming the first stuck action of each rank.
Result<Schedule> add_communication(const Schedule& schedule);

}  // namespace plumbline
