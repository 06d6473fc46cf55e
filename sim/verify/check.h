// check: proves properties of a Program without executing it.
//
// One traversal decides the certification mode (rendezvous, strict host order, cold connections at once):
// every operation is visited once, in the order in which it becomes possible. The edges of the default mode
// (rendezvous, free, warm) are a subset of the certification mode's, so what certifies completes by default
// too, with the same labels (tested as a property); when certification sticks, the witness is recorded and
// the default mode is decided by the simulator.
//
// Why one traversal is enough: matching is first-in-first-out per ordered pair without wildcards, every wait
// is a conjunction, a rank's host program is straight-line between decisions, and a kernel or group that
// could start stays able to start until it does. So any maximal execution executes the same operations
// (diamond property), and deadlock, matching and labels do not depend on the interleaving. Cold connections
// are host messages, first-in-first-out per (communicator, pair, pass), to which the same argument applies.
#pragma once

#include "engine/base/result.h"
#include "engine/program/link.h"
#include "engine/runtime/time_model.h"
#include "sim/verdict.h"

namespace plumbline {

struct CheckOptions {
  Bytes memory_limit = 0;  // 0: none
  // For the makespans reported beside the verdict; zero times if left out. Where ranks share cores (TimeModel::cores),
  // or the step ends later than after 2^53 nanoseconds (lanes.h), the simulator tells them, which takes longer than the
  // proof.
  TimeModel time;
  bool makespan = true;  // false: skip timing
};

// Whether the Program is one that the proof is about: plain (is_plain), and with every message of a rank to itself
// beside its receive in one group, since NCCL refuses others at run time (N25). Examine the rest by simulation
// (sim/examine.h).
bool is_provable(const LinkedProgram& linked);

// Both arms of every decision are checked; findings of the two arms are merged. Refused if not is_provable().
Result<Verdict> check_program(const LinkedProgram& linked, const CheckOptions& options = {});

}  // namespace plumbline
