// Explore: whether one run of the simulator decides for all, and what is done where it does not.
//
// Theorem (confluence). Let every rank have one host thread, let no call abort or revoke a communicator or create one
// without blocking, no process end and no kernel fault. Then under every NcclModel without a limit of processors
// (sms = 0) all maximal executions of a Program - whatever the order in which hosts, devices and links take their
// steps - execute the same operations, match the same ends, and leave the same operations waiting.
//
// Why: a step is enabled by conditions that, once true, stay true until it is taken - what is before it on its
// stream, communicator, launch order and hardware queue has completed or started; its match, the next of a
// first-in-first-out channel, is active; its buffer has room, which only earlier sends of its own channel take;
// the members of its collective, or the hosts of its meeting, have arrived. No step disables another, and two
// enabled steps lead to the same state in either order. By Newman's lemma all maximal executions end alike.
// Covered by this: groups that complete as a whole and pieces of split groups (chains of conditions), cold
// connections (host messages, first-in-first-out), blocking creation and destruction of communicators (the k-th
// call meets the k-th), both arms of decisions (each is straight-line). Not covered, since the order of steps
// decides: host threads that share a rank's communicators and launch order, processors that are given to the
// kernel that comes first, abort and revoke, the use of a communicator whose creation was not waited for, and what
// has happened by the time that a process ends or a kernel faults.
//
// Tested against every interleaving of a model of its own, tests/sim/interleavings.h: all programs of two ranks with up
// to four messages each over two communicators, of three ranks with up to two, and a million random ones.
//
// There the explorer takes all other steps first, which the argument above allows, and branches only where the
// order matters: which host of the rank goes on, or whether time passes first; which kernel gets processors. It
// does so exhaustively while the number of schedules stays within a limit, then at random from a seed. The
// verdict says which.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/program/link.h"
#include "engine/runtime/time_model.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline {

// Whether calls or failures of the Program make the order of steps matter, whatever the model.
bool order_decides(const Program& program);
bool decided_by_one_run(const Program& program, const NcclModel& model);

struct ExploreOptions {
  std::int64_t most_schedules = 5000;  // exhaustively; then
  std::int64_t samples = 1000;         // at random
  std::uint64_t seed = 1;
};

struct Exploration {
  // Of the first schedule that does not complete or has a finding, else of all: with its evidence.
  ModeVerdict verdict;
  bool exhaustive = false;
  std::int64_t schedules = 0;          // examined
  std::vector<std::size_t> decisions;  // that lead to the verdict's schedule, in order
};
// `read_value` is what every host variable reads (the arm of decisions).
Result<Exploration> explore(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time,
                            const ExploreOptions& options = {}, double read_value = 0.0);

}  // namespace plumbline
