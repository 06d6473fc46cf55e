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

SyncTables::SyncTables(const Program& program) : program_(program) {
  first_effect_.reserve(program.kernels.size() + 1);
  repeats_.reserve(program.kernels.size());
  effects_.reserve(program.kernels.size() * 2);
  for (const Kernel& kernel : program.kernels) {
    const std::size_t first = effects_.size();
    first_effect_.push_back(static_cast<std::uint32_t>(first));
    add_kernel(kernel);
    repeats_.push_back(std::all_of(effects_.begin() + static_cast<std::ptrdiff_t>(first), effects_.end(),
                                   [](const Effect& effect) {
                                     return effect.kind == SyncKind::kAdd || effect.kind == SyncKind::kRead;
                                   }));
  }
  first_effect_.push_back(static_cast<std::uint32_t>(effects_.size()));
  endpoints_.reserve(program.endpoints.size());
  for (const Endpoint& endpoint : program.endpoints) {
    const SlotKind slot = program.slots[endpoint.slot].kind;
    const bool gathers = slot == SlotKind::kParameters && endpoint.kind == EndpointKind::kAllGather;
    endpoints_.push_back(slot == SlotKind::kMainGrads && is_sum(endpoint) ? kReduces
                         : gathers                                        ? kGathers
                                                                          : 0);
  }
}

void SyncTables::add_kernel(const Kernel& kernel) {
  const auto add = [&](SyncKind kind, std::uint16_t slot) { effects_.push_back({kind, slot}); };
  const auto kind_of = [&](std::uint16_t slot) { return program_.slots[slot].kind; };
  const bool computes = kernel.kind <= KernelKind::kWeightGrad;
  for (const std::uint16_t slot : kernel.reads) {
    if (computes && kind_of(slot) == SlotKind::kParameters && program_.slots[slot].persistent)
      add(SyncKind::kRead, slot);
    if (kind_of(slot) != SlotKind::kMainGrads) continue;
    if (kernel.kind == KernelKind::kNormSums) add(SyncKind::kUse, slot);
    if (!is_step(kernel.kind)) continue;
    add(SyncKind::kUse, slot);
    add(SyncKind::kStep, slot);
    steps_ = true;
  }
  for (const std::uint16_t slot : kernel.writes) {
    if (is_step(kernel.kind) && kind_of(slot) == SlotKind::kParameters) add(SyncKind::kStep, slot);
    if (kind_of(slot) != SlotKind::kMainGrads) continue;
    if (kernel.kind == KernelKind::kZeroGrad) add(SyncKind::kZero, slot);
    if (computes) add(SyncKind::kAdd, slot);
    if (kernel.kind == KernelKind::kUnscaleCheck) add(SyncKind::kUnscale, slot);
  }
}

ScratchVector<SyncEvent> SyncTables::events(std::size_t thread) {
  ScratchVector<SyncEvent> out;
  out.reserve(16);
  last_.assign(program_.slots.size(), 0xFF);
  quiet_at_.assign(program_.kernels.size(), 0);
  const auto put = [&](SyncKind kind, std::uint16_t slot, std::uint32_t item) {
    const bool repeats = kind == SyncKind::kAdd || kind == SyncKind::kRead;
    if (repeats && last_[slot] == static_cast<std::uint8_t>(kind)) return;
    last_[slot] = static_cast<std::uint8_t>(kind);
    out.push_back({kind, slot, item});
  };
  for (std::uint32_t i = program_.threads[thread].begin; i < program_.threads[thread].end; ++i) {
    const Item item = program_.items[i];
    if ((item_flags(item) & kArmYes) != 0) continue;
    if (item_op(item) == ItemOp::kLaunch) {
      const unsigned kernel = item_ref(item);
      if (repeats_[kernel] != 0 && quiet_at_[kernel] == out.size() + 1) continue;
      for (std::uint32_t e = first_effect_[kernel]; e < first_effect_[kernel + 1]; ++e)
        put(effects_[e].kind, effects_[e].slot, i);
      quiet_at_[kernel] = static_cast<std::uint32_t>(out.size()) + 1;
    } else if (item_op(item) == ItemOp::kOp && endpoints_[item_ref(item)] != 0) {
      const std::uint16_t slot = program_.endpoints[item_ref(item)].slot;
      put(endpoints_[item_ref(item)] == kReduces ? SyncKind::kReduce : SyncKind::kGather, slot, i);
    }
  }
  return out;
}

}  // namespace plumbline::verify
