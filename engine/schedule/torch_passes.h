// The passes by which torch.distributed.pipelining turns an order of computations into the rows its runtime executes
// (schedules.py, version 2.14.1). Each gives what torch gives, action by action, from valid rows
// (tests/oracles/torch_pipelining). torch applies them in this order:
//
//   add_sharding       _add_unshard_reshard   gathers and drops of sharded parameters
//   add_reductions     _add_reduce_grad       a stage's gradient reduction after its last backward
//   add_communication  _add_send_recv         communicate.h
//   defer_receives     _defer_recv_ops        optional (defer_pp_recv)
//
// merge_backwards (_merge_bw) and dry_run (_simulate_comms_compute) stand beside them. All are linear in the number
// of actions, where torch's are quadratic, times small numbers: stages of a rank, or a logarithm.
#pragma once

#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/idle_cells.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

// Before every computation the next `active` different stages of the rank are gathered, those beyond are dropped;
// at the end of the row all are. A pair counts as one step, so that one stage more may be active. Stages that are
// dropped at one place are in the order in which Python's set lists them (python_set.h), as torch's are. Rows may
// hold computations only.
Result<Schedule> add_sharding(const Schedule& schedule, int active = 3);

// REDUCE_GRAD of a stage after its last W or B on the rank (after the pair that holds it). torch counts backwards and
// takes the `microbatches`-th, which is the same in valid rows.
Schedule add_reductions(const Schedule& schedule);

// Every receive moves to just before the computation that reads it; receives from a higher rank are posted before the
// next send to it. Under rendezvous this can wait in a cycle where the given rows do not (pytorch/pytorch#172668, and
// docs/schedules.md). Errors: a receive that nothing reads, or that stands twice.
Result<Schedule> defer_receives(const Schedule& schedule);

// I directly followed by W of the same stage and microbatch become B.
Schedule merge_backwards(const Schedule& schedule);

// torch's dry run: unit time, one action a rank and step, sends that never wait, receives by label. The rows that
// come back hold what ran, pairs taken apart, UNSHARD, RESHARD and REDUCE_GRAD left out (torch refuses them), and
// an idle step where a rank had to wait. Errors: no rank can go on, with the action each of them is at.
struct DryRun {
  Schedule schedule;
  IdleCells idle;
  int steps = 0;  // the longest row, idle steps counted
};
Result<DryRun> dry_run(const Schedule& schedule);

}  // namespace plumbline
