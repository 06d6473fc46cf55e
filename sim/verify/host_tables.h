// HostTables: a Program's kernels and endpoints as the host pass reads them - flat, small, and shared by all
// ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/verify/buffers.h"
#include "sim/verify/slot_table.h"
#include "sim/verify/sync_events.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

// A kernel's slots in one array: reads, then writes, then frees.
struct KernelRow {
  std::uint32_t begin = 0;
  std::uint16_t reads = 0;
  std::uint16_t writes = 0;
  std::uint16_t frees = 0;
  bool counts = false;    // a computation in the sense of ProgramSize
  bool in_place = false;  // some slot is both read and written
};

struct EndpointRow {
  std::uint16_t slot = 0;
  EndpointKind kind = EndpointKind::kSend;
  bool free_after = false;
  bool dropped = false;  // a collective without bytes does nothing (N60)
};

struct HostTables {
  explicit HostTables(const CheckWorld& check_world)
      : world(&check_world), slots(*check_world.program), sync(*check_world.program) {}

  // What the general pass alone looks up, made when it first runs.
  void make_general() {
    if (made_general) return;
    made_general = true;
    const Program& program = *world->program;
    costs = class_costs(program);
    for (const Kernel& kernel : program.kernels) add_kernel(kernel);
    endpoints.reserve(program.endpoints.size());
    for (const Endpoint& endpoint : program.endpoints) {
      const bool dropped = !is_p2p(endpoint.kind) && endpoint.bytes == 0;
      endpoints.push_back({endpoint.slot, endpoint.kind, endpoint.free_after, dropped});
    }
    tallies.resize(kernels.size());
    seen.resize(endpoints.size());
    armed_seen.resize(endpoints.size());
  }

  void add_kernel(const Kernel& kernel) {
    KernelRow row;
    row.begin = static_cast<std::uint32_t>(kernel_slots.size());
    row.reads = static_cast<std::uint16_t>(kernel.reads.size());
    row.writes = static_cast<std::uint16_t>(kernel.writes.size());
    row.frees = static_cast<std::uint16_t>(kernel.frees.size());
    row.counts = is_computation(kernel.kind);
    row.in_place = std::any_of(kernel.writes.begin(), kernel.writes.end(), [&](std::uint16_t slot) {
      return std::find(kernel.reads.begin(), kernel.reads.end(), slot) != kernel.reads.end();
    });
    for (const auto* list : {&kernel.reads, &kernel.writes, &kernel.frees})
      kernel_slots.insert(kernel_slots.end(), list->begin(), list->end());
    kernels.push_back(row);
  }

  // An operation in the sense of ProgramSize.
  bool counts(Item item) const {
    return item_op(item) == ItemOp::kOp ||
           (item_op(item) == ItemOp::kLaunch && is_computation(world->program->kernels[item_ref(item)].kind));
  }

  const CheckWorld* world;
  SlotTable slots;
  SyncTables sync;
  // Of the general pass.
  bool made_general = false;
  ScratchVector<ClassCost> costs;
  ScratchVector<KernelRow> kernels;
  ScratchVector<std::uint16_t> kernel_slots;
  ScratchVector<EndpointRow> endpoints;
  ScratchVector<std::uint64_t> tallies;           // per kernel, of the walk in progress
  ScratchVector<std::uint32_t> tallied;           // kernels whose tally is not 0, some perhaps twice
  ScratchVector<std::uint32_t> seen, armed_seen;  // per endpoint: mark of the walk that has met it
  std::uint32_t mark = 0;
};

}  // namespace plumbline::verify
