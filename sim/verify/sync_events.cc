#include "sim/verify/sync_events.h"

#include <algorithm>

namespace plumbline::verify {
namespace {

constexpr std::uint8_t kReduces = 1;
constexpr std::uint8_t kGathers = 2;

bool is_step(KernelKind kind) {
  return kind == KernelKind::kOptimizerStep || kind == KernelKind::kSpeculativeStep;
}
bool is_sum(const Endpoint& endpoint) {
  const bool sums =
      endpoint.kind == EndpointKind::kAllReduce || endpoint.kind == EndpointKind::kReduceScatter;
  return sums && endpoint.reduce == ReduceOp::kSum;
}

}  // namespace

SyncTables::SyncTables(const Program& program)
    : program_(program),
      effects_(program.kernels.size() * 2),
      first_effect_(program.kernels.size() + 1),
      endpoints_(program.endpoints.size()),
      repeats_(program.kernels.size()) {
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    first_effect_[k] = static_cast<std::uint32_t>(effects_.size());
    add_kernel(program.kernels[k]);
    // What a kernel that computes does is kAdd and kRead; others do neither.
    const bool computes = program.kernels[k].kind <= KernelKind::kWeightGrad;
    repeats_[k] = computes || effects_.size() == first_effect_[k] ? 1 : 0;
  }
  first_effect_[program.kernels.size()] = static_cast<std::uint32_t>(effects_.size());
  for (std::size_t e = 0; e < program.endpoints.size(); ++e) {
    const Endpoint& endpoint = program.endpoints[e];
    endpoints_[e] = 0;
    if (is_p2p(endpoint.kind)) continue;
    const SlotKind slot = program.slots[endpoint.slot].kind;
    if (slot == SlotKind::kMainGrads && is_sum(endpoint)) endpoints_[e] = kReduces;
    if (slot == SlotKind::kParameters && endpoint.kind == EndpointKind::kAllGather) endpoints_[e] = kGathers;
  }
}

void SyncTables::add_kernel(const Kernel& kernel) {
  const bool computes = kernel.kind <= KernelKind::kWeightGrad, steps = is_step(kernel.kind);
  for (const std::uint16_t slot : kernel.reads) {
    const SlotClass& row = program_.slots[slot];
    if (computes && row.kind == SlotKind::kParameters && row.persistent)
      effects_.push({SyncKind::kRead, slot});
    if (row.kind != SlotKind::kMainGrads) continue;
    if (steps || kernel.kind == KernelKind::kNormSums) effects_.push({SyncKind::kUse, slot});
    if (!steps) continue;
    effects_.push({SyncKind::kStep, slot});
    steps_ = true;
  }
  for (const std::uint16_t slot : kernel.writes) {
    const SlotKind kind = program_.slots[slot].kind;
    if (steps && kind == SlotKind::kParameters) effects_.push({SyncKind::kStep, slot});
    if (kind != SlotKind::kMainGrads) continue;
    if (kernel.kind == KernelKind::kZeroGrad) effects_.push({SyncKind::kZero, slot});
    if (computes) effects_.push({SyncKind::kAdd, slot});
    if (kernel.kind == KernelKind::kUnscaleCheck) effects_.push({SyncKind::kUnscale, slot});
  }
}

void SyncTables::begin() {
  events_.clear();
  if (!steps_) return;
  events_.reserve(16);
  last_.assign(program_.slots.size(), 0xFF);
}

void SyncTables::operation(unsigned endpoint, std::uint32_t item) {
  if (!steps_ || endpoints_[endpoint] == 0) return;
  put(endpoints_[endpoint] == kReduces ? SyncKind::kReduce : SyncKind::kGather,
      program_.endpoints[endpoint].slot, item);
}

ScratchVector<SyncEvent> SyncTables::events(std::size_t thread) {
  begin();
  if (!steps_) return {};
  // A kernel whose effects can all repeat has nothing to add while nothing else happens.
  ScratchVector<std::uint32_t> quiet_at(program_.kernels.size());
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
