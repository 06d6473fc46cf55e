#include "sim/verify/sync_events.h"

#include <algorithm>

namespace plumbline::verify {
namespace {

bool is_step(KernelKind kind) {
  return kind == KernelKind::kOptimizerStep || kind == KernelKind::kSpeculativeStep;
}
bool is_sum(const Endpoint& endpoint) {
  const bool sums =
      endpoint.kind == EndpointKind::kAllReduce || endpoint.kind == EndpointKind::kReduceScatter;
  return sums && endpoint.reduce == ReduceOp::kSum;
}

}  // namespace

SyncTables::SyncTables(const Program& program) : program_(program), events_(15) {
  for (const Kernel& kernel : program.kernels) {
    if (!is_step(kernel.kind)) continue;
    for (const std::uint16_t slot : kernel.reads)
      steps_ = steps_ || program.slots[slot].kind == SlotKind::kMainGrads;
  }
  if (steps_) last_.resize(program.slots.size());
}

// For all slots of a kind in the list; whether there is one.
[[gnu::always_inline]] inline bool SyncTables::put(SyncKind kind, SlotKind of, const RowList& slots,
                                                   std::uint32_t item) {
  bool any = false;
  for (const std::uint16_t slot : slots) {
    const SlotClass& row = program_.slots[slot];
    if (row.kind != of || (kind == SyncKind::kRead && !row.persistent)) continue;
    any = true;
    if (kind == SyncKind::kStep && of == SlotKind::kMainGrads) put(SyncKind::kUse, slot, item);
    put(kind, slot, item);
  }
  return any;
}

bool SyncTables::launch(unsigned number, std::uint32_t item) {
  const Kernel& kernel = program_.kernels[number];
  switch (kernel.kind) {
    case KernelKind::kForward:
    case KernelKind::kBackward:
    case KernelKind::kInputGrad:
    case KernelKind::kWeightGrad: {
      const bool reads = put(SyncKind::kRead, SlotKind::kParameters, kernel.reads, item);
      return put(SyncKind::kAdd, SlotKind::kMainGrads, kernel.writes, item) || reads;
    }
    case KernelKind::kZeroGrad:
      return put(SyncKind::kZero, SlotKind::kMainGrads, kernel.writes, item);
    case KernelKind::kUnscaleCheck:
      return put(SyncKind::kUnscale, SlotKind::kMainGrads, kernel.writes, item);
    case KernelKind::kNormSums:
      return put(SyncKind::kUse, SlotKind::kMainGrads, kernel.reads, item);
    case KernelKind::kOptimizerStep:
    case KernelKind::kSpeculativeStep: {
      const bool reads = put(SyncKind::kStep, SlotKind::kMainGrads, kernel.reads, item);
      return put(SyncKind::kStep, SlotKind::kParameters, kernel.writes, item) || reads;
    }
    default:
      return false;
  }
}

void SyncTables::begin() {
  events_.clear();
  ++walk_;
}

void SyncTables::operation(unsigned number, std::uint32_t item) {
  const Endpoint& endpoint = program_.endpoints[number];
  const SlotKind kind = program_.slots[endpoint.slot].kind;
  if (kind == SlotKind::kMainGrads && is_sum(endpoint)) put(SyncKind::kReduce, endpoint.slot, item);
  if (kind == SlotKind::kParameters && endpoint.kind == EndpointKind::kAllGather)
    put(SyncKind::kGather, endpoint.slot, item);
}

ScratchVector<SyncEvent> SyncTables::events(std::size_t thread) {
  begin();
  if (!steps_) return {};
  // A kernel whose effects can all repeat has nothing to add while nothing else happens.
  constexpr std::size_t kNever = ~std::size_t{0};
  ScratchVector<std::size_t> quiet_at(program_.kernels.size(), kNever);
  std::uint32_t next = program_.threads[thread].begin;
  while (next < program_.threads[thread].end) {
    const Item item = program_.items[next];
    const std::uint32_t first = next;
    next = item_op(item) == ItemOp::kOp ? group_end(program_, first) : first + 1;
    if ((item_flags(program_.items[next - 1]) & kArmYes) != 0) continue;
    if (item_op(item) == ItemOp::kOp) {
      for (std::uint32_t i = first; i < next; ++i) operation(item_ref(program_.items[i]), i);
    } else if (item_op(item) == ItemOp::kLaunch) {
      const unsigned kernel = item_ref(item);
      if (repeats(kernel) && quiet_at[kernel] == happened()) continue;
      launch(kernel, first);
      quiet_at[kernel] = happened();
    }
  }
  return take();
}

}  // namespace plumbline::verify
